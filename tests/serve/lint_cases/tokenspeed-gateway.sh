#!/usr/bin/env bash
set -euo pipefail
ts serve moonshotai/Kimi-K3 --trust-remote-code --mm-encoder-tp-mode data --disable-kvstore --tensor-parallel-size 8 --ep-size 8 --enable-cache-report
