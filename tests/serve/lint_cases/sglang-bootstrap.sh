#!/usr/bin/env bash
set -euo pipefail
python3 -m sglang.launch_server --model-path moonshotai/Kimi-K3 --trust-remote-code --reasoning-parser kimi_k3 --tool-call-parser kimi_k3 --tp-size 8 --disaggregation-mode prefill --disaggregation-transfer-backend nixl --disaggregation-bootstrap-port 9000 &
python3 -m sglang_router.launch_router --pd-disaggregation --prefill http://10.0.0.1:30000 8998 --decode http://10.0.0.2:30000 --host 0.0.0.0 --port 8000
