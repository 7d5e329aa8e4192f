#!/bin/bash
set -euo pipefail
export GLOO_SOCKET_IFNAME=eth0 NCCL_SOCKET_IFNAME=eth0
ts serve moonshotai/Kimi-K3 --trust-remote-code --kv-cache-dtype fp8 --mm-encoder-tp-mode data --disable-kvstore --tensor-parallel-size 8 --pipeline-parallel-size 2 --nnodes 2 --node-rank 0 --dist-init-addr 10.0.0.1:23456
