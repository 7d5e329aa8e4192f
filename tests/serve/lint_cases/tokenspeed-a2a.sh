#!/bin/bash
set -euo pipefail
ts serve moonshotai/Kimi-K3 --trust-remote-code --kv-cache-dtype fp8 --mm-encoder-tp-mode data --disable-kvstore --tensor-parallel-size 8 --all2all-backend agrs
