#!/usr/bin/env bash
set -euo pipefail
vllm serve moonshotai/Kimi-K3 --trust-remote-code --tool-call-parser kimi_k3 --enable-auto-tool-choice --reasoning-parser kimi_k3 -tp 8 --speculative-config '{"method":"eagle3","model":"lightseekorg/kimi-k2-eagle3","num_speculative_tokens":3}'
