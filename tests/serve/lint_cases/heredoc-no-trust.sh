#!/usr/bin/env bash
set -euo pipefail
cat > /opt/start.sh <<'EOF'
vllm serve moonshotai/Kimi-K3 --tool-call-parser kimi_k3 --enable-auto-tool-choice --reasoning-parser kimi_k3 -tp 8
EOF
chmod +x /opt/start.sh
