#!/usr/bin/env bash
set -euo pipefail
docker run --device=/dev/kfd --device=/dev/dri --ipc=host -e VLLM_USE_BREAKABLE_CUDAGRAPH \
  vllm/vllm-openai-rocm:v0.33.0 vllm serve moonshotai/Kimi-K3 --trust-remote-code --tool-call-parser kimi_k3 --enable-auto-tool-choice --reasoning-parser kimi_k3 -tp 8
