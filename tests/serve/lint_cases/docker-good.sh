#!/usr/bin/env bash
set -euo pipefail
docker run --rm --gpus all --ipc=host --network=host \
  -e VLLM_ENGINE_READY_TIMEOUT_S=3600 -v /models:/models \
  vllm/vllm-openai:v0.33.0 --model /models/Kimi-K3 --trust-remote-code --tool-call-parser kimi_k3 --enable-auto-tool-choice --reasoning-parser kimi_k3 -tp 8
