#!/usr/bin/env bash
set -euo pipefail
TP=8
while [[ $# -gt 0 ]]; do
  case $1 in
    --tp) TP=$2; shift 2;;
    *) EXTRA+=("$1"); shift;;
  esac
done
vllm serve moonshotai/Kimi-K3 --trust-remote-code --tool-call-parser kimi_k3 --enable-auto-tool-choice --reasoning-parser kimi_k3 -tp "$TP" "${EXTRA[@]}"
