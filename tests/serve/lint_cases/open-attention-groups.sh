#!/usr/bin/env bash
set -euo pipefail
python3 -m sglang.launch_server --model-path moonshotai/Kimi-K3 --trust-remote-code --reasoning-parser kimi_k3 --tool-call-parser kimi_k3 --tp-size 8 --dp-size $DP --enable-dp-attention --ep-size $EP
