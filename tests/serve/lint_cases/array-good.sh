#!/usr/bin/env bash
set -euo pipefail
export VLLM_ENGINE_READY_TIMEOUT_S=3600
MODEL="${MODEL:-moonshotai/Kimi-K3}"
ARGS=(
  --trust-remote-code --tool-call-parser kimi_k3 --enable-auto-tool-choice --reasoning-parser kimi_k3
  --tensor-parallel-size 8
  --gpu-memory-utilization 0.95   # of 268 GiB
)
ARGS+=(--kv-cache-dtype fp8 --attention-config '{"use_prefill_query_quantization":true,"mla_prefill_backend":"flashinfer"}')
exec vllm serve "$MODEL" "${ARGS[@]}" "$@"
