#!/usr/bin/env bash
set -euo pipefail
KV='{"kv_connector":"NixlConnector","kv_role":"'$ROLE'"}'
export VLLM_SSM_CONV_STATE_LAYOUT=DS VLLM_NIXL_SIDE_CHANNEL_HOST=10.0.0.1
vllm serve moonshotai/Kimi-K3 --trust-remote-code --tool-call-parser kimi_k3 --enable-auto-tool-choice --reasoning-parser kimi_k3 -tp 8 --kv-transfer-config "$KV"
