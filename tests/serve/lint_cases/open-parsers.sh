#!/usr/bin/env bash
set -euo pipefail
exec vllm serve moonshotai/Kimi-K3 --trust-remote-code --enable-auto-tool-choice -tp 8 \
  --tool-call-parser $PARSER --reasoning-parser "${RP}"
