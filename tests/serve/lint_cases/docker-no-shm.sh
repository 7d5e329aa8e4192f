#!/usr/bin/env bash
set -euo pipefail
docker run --rm --gpus all -p 30000:30000 lmsysorg/sglang:v0.5.23 \
  python3 -m sglang.launch_server --model-path moonshotai/Kimi-K3 --trust-remote-code --reasoning-parser kimi_k3 --tool-call-parser kimi_k3 --tp-size 8
