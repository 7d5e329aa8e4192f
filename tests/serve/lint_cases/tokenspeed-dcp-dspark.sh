#!/bin/bash
set -euo pipefail
ts serve moonshotai/Kimi-K3 --trust-remote-code --kv-cache-dtype fp8 --mm-encoder-tp-mode data --disable-kvstore --tensor-parallel-size 8 --decode-context-parallel-size 8 --speculative-algorithm DSPARK --speculative-draft-model-path Inferact/Kimi-K3-DSpark --speculative-num-draft-tokens 8 --speculative-num-steps 7
