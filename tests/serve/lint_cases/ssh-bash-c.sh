#!/usr/bin/env bash
set -euo pipefail
ssh node1 "bash -lc 'VLLM_ENGINE_READY_TIMEOUT_S=60 vllm serve moonshotai/Kimi-K3 --trust-remote-code --tool-call-parser kimi_k3 --enable-auto-tool-choice --reasoning-parser kimi_k3 -tp 8'" 
