#!/usr/bin/env bash
set -euo pipefail
exec vllm serve moonshotai/Kimi-K3 --trust-remote-code --tool-call-parser kimi_k3 --enable-auto-tool-choice --reasoning-parser kimi_k3 -tp 2 --max-model-len 1024 --load-format dummy \
  --hf-overrides '{"text_config":{"num_hidden_layers":12,"num_experts":8}}'
