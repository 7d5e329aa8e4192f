#!/usr/bin/env bash
set -euo pipefail
vllm serve moonshotai/Kimi-K3 --trust-remote-code --tool-call-parser kimi_k3 --enable-auto-tool-choice --reasoning-parser kimi_k3 --data-parallel-size 16 --data-parallel-size-local $L --enable-expert-parallel --data-parallel-address $A --data-parallel-start-rank $R
