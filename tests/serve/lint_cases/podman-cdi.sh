#!/usr/bin/env bash
set -euo pipefail
podman run --device nvidia.com/gpu=all --ipc=host vllm/vllm-openai:v0.33.0 vllm serve moonshotai/Kimi-K3 --trust-remote-code --tool-call-parser kimi_k3 --enable-auto-tool-choice --reasoning-parser kimi_k3 -tp 8
