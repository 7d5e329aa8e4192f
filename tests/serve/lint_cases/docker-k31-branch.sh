#!/usr/bin/env bash
set -euo pipefail
docker run --gpus all --ipc=host lmsysorg/sglang:kimi-k31-pro \
  python3 -m sglang.launch_server --model-path moonshotai/Kimi-K3.1-Pro --trust-remote-code --reasoning-parser kimi_k3 --tool-call-parser kimi_k3 --tp 8
