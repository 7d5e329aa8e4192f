#!/usr/bin/env bash
set -euo pipefail
MODEL=${MODEL:-moonshotai/Kimi-K3}
TP=${TP:-$(nvidia-smi -L | wc -l)}
case "${1:-latency}" in
  latency) EXTRA=(--max-num-seqs 64) ;;
  throughput) EXTRA=(--max-num-seqs 512) ;;
  *) echo "usage: $0 latency|throughput" >&2; exit 2 ;;
esac
vllm serve "$MODEL" --trust-remote-code --tensor-parallel-size "$TP" --load-format fastsafetensors \
  --gpu-memory-utilization 0.9 --reasoning-parser kimi_k3 --enable-auto-tool-choice --tool-call-parser kimi_k3 \
  --host 0.0.0.0 --port 30000 --max-model-len auto --no-enable-prefix-caching "${EXTRA[@]}" \
  --speculative-config '{"model":"RedHatAI/Kimi-K3-speculator.dspark","method":"dspark","num_speculative_tokens":8,"draft_sample_method":"probabilistic","rejection_sample_method":"standard"}' 2>&1 | tee "log-$(date +%s).txt" &
PID=$!
until curl -sf http://localhost:30000/health; do sleep 5; done
wait $PID
