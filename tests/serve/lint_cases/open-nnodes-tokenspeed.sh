#!/usr/bin/env bash
set -euo pipefail
export NCCL_SOCKET_IFNAME=eth0 GLOO_SOCKET_IFNAME=eth0
exec ts serve --model moonshotai/Kimi-K3 --trust-remote-code --tensor-parallel-size 16 --nnodes "$NN" --node-rank "$RANK" \
  --dist-init-addr "$HEAD:20000" --mm-encoder-tp-mode data
