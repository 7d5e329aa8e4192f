#!/usr/bin/env bash
set -euo pipefail
export VLLM_SSM_CONV_STATE_LAYOUT=$LAYOUT VLLM_NIXL_SIDE_CHANNEL_HOST=$HOST_IP
exec vllm serve moonshotai/Kimi-K3 --trust-remote-code --tool-call-parser kimi_k3 --enable-auto-tool-choice --reasoning-parser kimi_k3 -tp 8 \
  --kv-transfer-config '{"kv_connector":"NixlConnector","kv_role":"kv_both"}'
