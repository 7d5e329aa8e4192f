#!/usr/bin/env bash
set -euo pipefail
export VLLM_MODEL=moonshotai/Kimi-K3
vllm serve "$VLLM_MODEL" --trust-remote-code --tool-call-parser kimi_k3 --enable-auto-tool-choice --reasoning-parser kimi_k3 -tp 8
