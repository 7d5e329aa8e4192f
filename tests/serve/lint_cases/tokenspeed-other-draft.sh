#!/usr/bin/env bash
set -euo pipefail
ts serve --model moonshotai/Kimi-K3 --trust-remote-code --tensor-parallel-size 8 --mm-encoder-tp-mode data --disable-kvstore --speculative-algorithm DSPARK --speculative-draft-model-path someone/dspark
