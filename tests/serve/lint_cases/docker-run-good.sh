docker run -d --name k3 --gpus all --ipc=host --network host --ulimit memlock=-1 --ulimit stack=67108864 \
  -v /data:/data:ro -e VLLM_ENGINE_READY_TIMEOUT_S=3600 -e VLLM_USE_V2_MODEL_RUNNER=1 vllm/vllm-openai:v0.33.0 \
  /data/Kimi-K3 --trust-remote-code --tool-call-parser kimi_k3 --enable-auto-tool-choice --reasoning-parser kimi_k3 -tp 8 --served-model-name kimi-k3
