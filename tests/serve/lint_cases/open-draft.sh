#!/usr/bin/env bash
set -euo pipefail
vllm serve moonshotai/Kimi-K3 --trust-remote-code --tool-call-parser kimi_k3 --enable-auto-tool-choice --reasoning-parser kimi_k3 -tp 8 --speculative-config "{\"method\":\"$METHOD\",\"model\":\"$DRAFT\",\"num_speculative_tokens\":7}"
