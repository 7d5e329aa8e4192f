#!/usr/bin/env bash
set -euo pipefail
docker run --rm --ipc=host vllm/vllm-openai:v0.33.0 --model moonshotai/Kimi-K3 --trust-remote-code --tool-call-parser kimi_k3 --enable-auto-tool-choice --reasoning-parser kimi_k3 -tp 8
