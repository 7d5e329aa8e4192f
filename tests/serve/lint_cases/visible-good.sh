#!/usr/bin/env bash
set -euo pipefail
export CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7
python3 -m sglang.launch_server --model-path moonshotai/Kimi-K3 --trust-remote-code --reasoning-parser kimi_k3 --tool-call-parser kimi_k3 --tp-size 8 &
CUDA_VISIBLE_DEVICES="$GPUS" python3 -m sglang.launch_server --model-path moonshotai/Kimi-K3 --trust-remote-code --reasoning-parser kimi_k3 --tool-call-parser kimi_k3 --tp-size 8 --port 30001
