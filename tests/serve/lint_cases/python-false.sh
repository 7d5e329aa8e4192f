#!/usr/bin/env bash
set -euo pipefail
exec vllm serve moonshotai/Kimi-K3 --trust-remote-code --tool-call-parser kimi_k3 --enable-auto-tool-choice --reasoning-parser kimi_k3 -tp 8 --kv-cache-dtype fp8 \
  --attention-config.use_prefill_query_quantization=False
