#!/usr/bin/env bash
set -euo pipefail
docker run --device=nvidia.com/gpu=0 --device=nvidia.com/gpu=1 --ipc=host \
  vllm/vllm-openai:v0.33.0 vllm serve moonshotai/Kimi-K3 --trust-remote-code --tool-call-parser kimi_k3 --enable-auto-tool-choice --reasoning-parser kimi_k3 -tp 8
