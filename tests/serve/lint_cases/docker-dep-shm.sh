#!/usr/bin/env bash
set -euo pipefail
docker run --gpus all --ipc=host --entrypoint bash vllm/vllm-openai:v0.33.0 -c 'vllm serve moonshotai/Kimi-K3 --trust-remote-code --tool-call-parser kimi_k3 --enable-auto-tool-choice --reasoning-parser kimi_k3 -tp 1 -dp 8 -ep'
