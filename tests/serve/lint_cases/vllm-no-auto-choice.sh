#!/usr/bin/env bash
set -euo pipefail
vllm serve moonshotai/Kimi-K3 --trust-remote-code --tool-call-parser kimi_k3 --reasoning-parser kimi_k3 -tp 8
