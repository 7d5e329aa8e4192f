#!/usr/bin/env bash
set -euo pipefail
export VLLM_ENGINE_READY_TIMEOUT_S=600
docker run --gpus all --ipc=host -e VLLM_ENGINE_READY_TIMEOUT_S \
  vllm/vllm-openai:v0.33.0 vllm serve moonshotai/Kimi-K3 --trust-remote-code --tool-call-parser kimi_k3 --enable-auto-tool-choice --reasoning-parser kimi_k3 -tp 8
