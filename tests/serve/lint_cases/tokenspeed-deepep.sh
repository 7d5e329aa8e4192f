#!/usr/bin/env bash
set -euo pipefail
ts serve --model moonshotai/Kimi-K3 --trust-remote-code --tensor-parallel-size 8 --ep-size 8 --all2all-backend deepep --mm-encoder-tp-mode data --disable-kvstore
