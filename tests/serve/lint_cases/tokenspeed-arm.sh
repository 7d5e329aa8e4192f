#!/usr/bin/env bash
set -euo pipefail
export NCCL_SOCKET_IFNAME=eth0 GLOO_SOCKET_IFNAME=eth0
ts serve --model moonshotai/Kimi-K3 --trust-remote-code --tensor-parallel-size 8 --mm-encoder-tp-mode data --disable-kvstore --nnodes 2 --node-rank "$RANK" --dist-init-addr "$HEAD:20000"
