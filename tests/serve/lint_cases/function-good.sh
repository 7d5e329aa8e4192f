#!/usr/bin/env bash
set -euo pipefail
TP=8
start() {
  exec python3 -m sglang.launch_server --model-path moonshotai/Kimi-K3 --trust-remote-code --reasoning-parser kimi_k3 --tool-call-parser kimi_k3 --tp-size "$TP" "$@"
}
start --mem-fraction-static 0.85
