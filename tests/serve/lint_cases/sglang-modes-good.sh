#!/usr/bin/env bash
MODE="${MODE:-nospec}"
export SGLANG_USE_AITER=1
export SGLANG_AITER_K3_OPT=1
export AITER_FLYDSL_FORCE=1
export AITER_SITUV2_A8W4=1
ARGS=(
  --model-path moonshotai/Kimi-K3
  --trust-remote-code
  --tp 8
  --attention-backend triton
  --dtype bfloat16
  --mem-fraction-static "${MEM_FRAC:-0.85}"
  --cuda-graph-max-bs-decode 256
  --host 0.0.0.0
  --port "${PORT:-30000}"
  --disable-radix-cache
  --reasoning-parser kimi_k3
  --tool-call-parser kimi_k3
)
case "${MODE}" in
  nospec) ;;
  dspark)
    ARGS+=(
      --speculative-draft-model-path RadixArk/Kimi-K3-DSpark
      --speculative-algorithm DSPARK
    )
    ;;
  *) echo "Unknown MODE: ${MODE} (nospec|dspark)" >&2; exit 2 ;;
esac
[[ -n "${CHUNK:-}" ]] && ARGS+=(--chunked-prefill-size "${CHUNK}")
exec sglang serve "${ARGS[@]}"
