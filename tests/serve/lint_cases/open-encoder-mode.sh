#!/usr/bin/env bash
set -euo pipefail
exec ts serve --model moonshotai/Kimi-K3 --trust-remote-code --tensor-parallel-size 8 --mm-encoder-tp-mode $M
