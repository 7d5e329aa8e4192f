#!/usr/bin/env bash
set -euo pipefail
export SGLANG_K3_ATTN_RES_MODE="${SGLANG_K3_ATTN_RES_MODE:-fast}"
exec python3 -m sglang.launch_server --model-path moonshotai/Kimi-K3 --trust-remote-code --reasoning-parser kimi_k3 --tool-call-parser kimi_k3 --tp-size 8
