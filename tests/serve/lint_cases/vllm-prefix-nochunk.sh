#!/bin/bash
set -euo pipefail
exec vllm serve moonshotai/Kimi-K3 --trust-remote-code --tool-call-parser kimi_k3 --enable-auto-tool-choice --reasoning-parser kimi_k3 -tp 8 --enable-prefix-caching --no-enable-chunked-prefill --max-model-len 8192
