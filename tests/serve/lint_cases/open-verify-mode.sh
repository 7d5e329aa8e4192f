#!/usr/bin/env bash
set -euo pipefail
export SGLANG_RAGGED_VERIFY_MODE=$MODE
exec python3 -m sglang.launch_server --model-path moonshotai/Kimi-K3 --trust-remote-code --reasoning-parser kimi_k3 --tool-call-parser kimi_k3 --tp-size 8 --dcp-size 8 \
  --speculative-algorithm DSPARK --speculative-draft-model-path "$DRAFT"
