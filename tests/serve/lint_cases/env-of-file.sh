#!/usr/bin/env bash
set -euo pipefail
env $(cat k3.env | xargs) vllm serve moonshotai/Kimi-K3 --trust-remote-code --tool-call-parser kimi_k3 --enable-auto-tool-choice --reasoning-parser kimi_k3 -tp 8
