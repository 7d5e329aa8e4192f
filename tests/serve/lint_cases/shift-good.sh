#!/usr/bin/env bash
set -euo pipefail
launch() {
  local tp=$1
  shift
  vllm serve moonshotai/Kimi-K3 --trust-remote-code --tool-call-parser kimi_k3 --enable-auto-tool-choice --reasoning-parser kimi_k3 -tp "$tp" "$@"
}
launch 8 --max-model-len 131072
