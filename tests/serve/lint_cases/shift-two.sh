#!/usr/bin/env bash
set -euo pipefail
launch() {
  local tp=$1 length=$2
  shift 2
  vllm serve moonshotai/Kimi-K3 --trust-remote-code --tool-call-parser kimi_k3 --enable-auto-tool-choice --reasoning-parser kimi_k3 -tp "$tp" --max-model-len "$length" "$@"
}
launch 8 131072 --no-such-flag
