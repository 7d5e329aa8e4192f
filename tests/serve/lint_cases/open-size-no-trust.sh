#!/usr/bin/env bash
exec vllm serve moonshotai/Kimi-K3 -tp "$TP" --tool-call-parser kimi_k3 \
  --enable-auto-tool-choice --reasoning-parser kimi_k3
