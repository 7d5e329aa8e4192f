"""For every rule a launch that it finds and one, as near as can be, that it does not."""

from typing import Any, Final

from k31ctl.core.rules import Container, FileKind

Case = tuple[str, dict[str, Any]]
V: Final = (
    "vllm serve moonshotai/Kimi-K3 --trust-remote-code --tool-call-parser kimi_k3 "
    "--enable-auto-tool-choice --reasoning-parser kimi_k3 -tp 8"
)
S: Final = (
    "python3 -m sglang.launch_server --model-path moonshotai/Kimi-K3 --trust-remote-code "
    "--reasoning-parser kimi_k3 --tool-call-parser kimi_k3 --tp-size 8"
)
T: Final = (
    "ts serve moonshotai/Kimi-K3 --trust-remote-code --mm-encoder-tp-mode data --disable-kvstore "
    "--tensor-parallel-size 8"
)
QUERY: Final = """ --attention-config '{"use_prefill_query_quantization":true}'"""
DSPARK: Final = (
    """ --speculative-config '{"method":"dspark","model":"m","num_speculative_tokens":7}'"""
)
NIXL: Final = """ --kv-transfer-config '{"kv_connector":"NixlConnector","kv_role":"kv_both"}'"""
SDSPARK: Final = " --speculative-algorithm DSPARK --speculative-draft-model-path m"
TDSPARK: Final = " --speculative-algorithm DSPARK --speculative-draft-model-path "
DS: Final = {"VLLM_SSM_CONV_STATE_LAYOUT": "DS"}
BOX: Final = {"has_gpus": True, "host_ipc": True, "image": "vllm/vllm-openai:v0.33.0"}


def box(**more: Any) -> Container:
    """A container with all that it needs, but for what is said."""
    return Container(**{**BOX, **more})


def case(command: str, **more: Any) -> Case:
    """One launch and what is known beside it."""
    return command, more


CASES: Final[dict[str, tuple[Case, Case]]] = {
    "script-line-ends": (
        case(V, kind=FileKind.SHELL, has_carriage_returns=True),
        case(V, kind=FileKind.COMPOSE, has_carriage_returns=True),
    ),
    # what the reader of a command finds
    "flag-unknown": (case(V + " --no-such-flag"), case(V + " --seed 1")),
    "flag-ambiguous": (
        case(S + " --cuda-graph-max-bs 256"),
        case(S + " --cuda-graph-max-bs-decode 256"),
    ),
    "flag-without-value": (case(V + " --max-model-len"), case(V + " --max-model-len 8192")),
    "flag-with-value": (case(V + " --enforce-eager=1"), case(V + " --enforce-eager")),
    "flag-bad-type": (case(V + " --max-num-seqs many"), case(V + " --max-num-seqs 8")),
    "flag-bad-choice": (case(S + " --kv-cache-dtype int3"), case(S + " --kv-cache-dtype auto")),
    "word-unexpected": (case(V + " --seed 1 stray"), case(V + " --seed 1")),
    "flag-missing": (
        case("python3 -m sglang.launch_server --trust-remote-code"),
        case("python3 -m sglang.launch_server --model-path m --trust-remote-code"),
    ),
    "model-twice": (case(T + " --model moonshotai/Kimi-K3"), case(T)),
    "flag-bad-value": (
        case(V.replace("--reasoning-parser kimi_k3", "--reasoning-parser no_such")),
        case(V),
    ),
    "field-unknown": (
        case(V + """ --attention-config '{"no_such_field":1}'"""),
        case(V + QUERY),
    ),
    "flag-to-gateway": (case(T + " --enable-cache-report"), case(T)),
    "flag-abbreviated": (case(V + " --max-model 8192"), case(V + " --max-model-len 8192")),
    "flag-repeated": (case(V + " --seed 1 --seed 2"), case(V + " --seed 1")),
    "object-overridden": (
        case(V + """ --attention-config.backend FLASHMLA --attention-config '{"backend":"X"}'"""),
        case(V + QUERY),
    ),
    "flag-old-spelling": (
        case(V + " --no-enable-prefix-caching"),
        case(V + " --disable-prefix-caching"),
    ),
    "flag-deprecated": (
        case(S + " --enable-dp-attention --dp-size 2"),
        case(S + " --attn-dp-size 2"),
    ),
    "config-file": (case(V + " --config settings.yaml"), case(V)),
    "variable-unread": (
        case(S, environment={"SGLANG_K3_ATTN_RES_MODE": "jit"}),
        case(S, environment={"SGLANG_USE_AITER": "1", "OTHER": "1"}),
    ),
    # the model
    "model-k31-unsupported": (case(V, model="kimi-k3.1-pro"), case(V)),
    "engine-too-old": (case(V, version="0.26.0"), case(V, version="0.27.1")),
    "gpu-mi300-class": (case(V, gpu_hint="AMD-Instinct-MI300X"), case(V, gpu_hint="MI355X")),
    "gpu-unsupported": (
        case(V, model="kimi-k3.1-pro", on="8x-rtx-pro-6000"),
        case(V, model="kimi-k3.1-pro", on="8x-b300"),
    ),
    "trust-remote-code-missing": (case(V.replace(" --trust-remote-code", "")), case(V)),
    "tool-parser-wrong": (
        case(V.replace("--tool-call-parser kimi_k3", "--tool-call-parser kimi_k2")),
        case(V),
    ),
    "reasoning-parser-wrong": (
        case(V.replace("--reasoning-parser kimi_k3", "--reasoning-parser kimi_k2")),
        case(V),
    ),
    "parser-missing": (case(V.replace(" --reasoning-parser kimi_k3", "")), case(V)),
    "draft-engine": (case(V + DSPARK, draft="radixark-k3-dspark"), case(V + DSPARK)),
    "draft-model": (
        case(V + DSPARK, draft="inferact-k3-dspark", model="kimi-k3.1-pro"),
        case(V + DSPARK, draft="inferact-k3-dspark"),
    ),
    "quantization-given": (case(V + " --quantization fp8"), case(S + " --quantization mxfp4")),
    "chat-template-given": (case(V + " --chat-template t.jinja"), case(V)),
    "install-without-blobfile": (
        case(V, installs=("vllm==0.33.0",)),
        case(V, installs=("vllm==0.33.0", "blobfile")),
    ),
    # sizes
    "number-out-of-range": (
        case(V + " --gpu-memory-utilization 95"),
        case(V + " --gpu-memory-utilization 0.95"),
    ),
    "layout-heads": (case(V.replace("-tp 8", "-tp 10")), case(V.replace("-tp 8", "-tp 12"))),
    "layout-attention-dp": (case(S + " --attn-dp-size 3"), case(S + " --attn-dp-size 2")),
    "layout-context-parallel": (case(V + " -dcp 3"), case(V + " -dcp 4")),
    "layout-stages": (case(V + " -pp 94"), case(V + " -pp 2")),
    "layout-world": (case(V + " -pp 2", on="8x-b300"), case(V + " -pp 2", on="8x-b300", nodes=2)),
    "layout-idle-gpus": (case(V, on="8x-b300", nodes=2), case(V, on="8x-b300")),
    "layout-refused": (
        case(S + " --ep-size 3", on="8x-b300"),
        case(S + " --ep-size 8", on="8x-b300"),
    ),
    "memory-weights": (case(V, on="8x-h200"), case(V, on="8x-b300")),
    "memory-longest": (
        case(V + " --gpu-memory-utilization 0.77 --kv-cache-dtype bfloat16", on="8x-b300"),
        case(V + " --gpu-memory-utilization 0.8 --max-model-len 8192", on="8x-b300"),
    ),
    "memory-tight": (
        case(
            V.replace("-tp 8", "-tp 16") + " --gpu-memory-utilization 0.97 --max-model-len 32768",
            on="8x-h200",
            nodes=2,
        ),
        case(V + " --max-model-len 32768", on="8x-b300"),
    ),
    # vLLM
    "vllm-mega-moe": (
        case(V + " --moe-backend deep_gemm_mega_moe"),
        case(V + " --moe-backend deep_gemm_mega_moe --enable-expert-parallel"),
    ),
    "vllm-experts-gpu": (
        case(V + " --moe-backend flashinfer_trtllm", on="8x-h200", nodes=2),
        case(V + " --moe-backend flashinfer_trtllm", on="8x-b300"),
    ),
    "vllm-mega-moe-fabric": (
        case(V + " -dp 2 -ep --moe-backend deep_gemm_mega_moe", on="8x-b300", nodes=2),
        case(V + " -dp 2 -ep --moe-backend deep_gemm_mega_moe", on="4x-gb300", nodes=4),
    ),
    "vllm-eplb": (case(V + " --enable-eplb"), case(V + " --enable-eplb -ep")),
    "vllm-moonep": (
        case(V + " --all2all-backend moonep"),
        case(V + " --all2all-backend deepep_v2"),
    ),
    "vllm-hopper-dep": (
        case(V.replace("-tp 8", "-dp 16 -ep"), on="8x-h200", nodes=2),
        case(V.replace("-tp 8", "-tp 8 -dp 2 -ep"), on="8x-h200", nodes=2),
    ),
    "vllm-prefill-context": (case(V + " -pcp 2"), case(V + " -pcp 1")),
    "vllm-auto-tool-choice": (case(V.replace(" --enable-auto-tool-choice", "")), case(V)),
    "vllm-torch-shm": (
        case(V + " --mm-tensor-ipc torch_shm"),
        case(V + " --mm-tensor-ipc direct_rpc"),
    ),
    "vllm-vision-ranks": (
        case(V + " --mm-encoder-tp-mode weights"),
        case(V + " --mm-encoder-tp-mode data"),
    ),
    "vllm-text-only-graphs": (
        case(V + """ --language-model-only --compilation-config '{"cudagraph_mm_encoder":true}'"""),
        case(V + " --language-model-only"),
    ),
    "vllm-dspark-pp": (case(V + DSPARK + " -pp 2"), case(V + DSPARK)),
    "vllm-dspark-dcp": (
        case(V + DSPARK + " -dcp 8", version="0.28.0"),
        case(V + DSPARK + " -dcp 8"),
    ),
    "vllm-draft-tokens-missing": (
        case(V + """ --speculative-config '{"method":"dspark","model":"m"}'"""),
        case(V + DSPARK),
    ),
    "vllm-draft-head-missing": (
        case(V + """ --speculative-config '{"method":"mtp","num_speculative_tokens":1}'"""),
        case(V + DSPARK),
    ),
    "vllm-draft-ranks": (
        case(V + DSPARK.replace('"num', '"draft_tensor_parallel_size":2,"num')),
        case(V + DSPARK.replace('"num', '"draft_tensor_parallel_size":8,"num')),
    ),
    "vllm-replayssm": (case(V + " --use-replayssm"), case(V + DSPARK + " --use-replayssm")),
    "vllm-replayssm-runner": (
        case(
            V + " --use-replayssm --enable-prefix-caching",
            environment={"VLLM_USE_V2_MODEL_RUNNER": "0"},
        ),
        case(V + DSPARK + " --use-replayssm --enable-prefix-caching"),
    ),
    "vllm-old-runner": (
        case(V + DSPARK, environment={"VLLM_USE_V2_MODEL_RUNNER": "0"}),
        case(V + DSPARK, environment={"VLLM_USE_V2_MODEL_RUNNER": "1"}),
    ),
    "vllm-latency-specialized": (
        case(V.replace("-tp 8", "-tp 4") + " --performance-mode latency_specialized"),
        case(V + " --performance-mode latency_specialized"),
    ),
    "vllm-connector-role": (
        case(V + """ --kv-transfer-config '{"kv_connector":"NixlConnector"}'"""),
        case(V + NIXL),
    ),
    "vllm-connector-expandable": (
        case(V + NIXL, environment={"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}),
        case(V, environment={"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}),
    ),
    "vllm-hybrid-manager": (
        case(V + " --disable-hybrid-kv-cache-manager"),
        case(V + " --enable-hybrid-kv-cache-manager"),
    ),
    "vllm-nixl-conv-layout": (case(V + NIXL), case(V + NIXL, environment=DS)),
    "vllm-nixl-garbled": (
        case(V + NIXL, environment=DS),
        case(V + NIXL.replace("Nixl", "MooncakeStore"), environment=DS),
    ),
    "vllm-nixl-dcp": (case(V + NIXL + " -dcp 4"), case(V + NIXL + " -dcp 8")),
    "nixl-side-channel": (
        case(V + NIXL, environment={"VLLM_NIXL_SIDE_CHANNEL_HOST": "localhost"}),
        case(V + NIXL, environment={"VLLM_NIXL_SIDE_CHANNEL_HOST": "10.0.0.1"}),
    ),
    "nixl-side-channel-unset": (
        case(V + NIXL, environment=DS, on="8x-b300"),
        case(V + NIXL, environment={**DS, "VLLM_NIXL_SIDE_CHANNEL_HOST": "h"}, on="8x-b300"),
    ),
    "vllm-lmcache-hybrid": (
        case(V + NIXL.replace("NixlConnector", "LMCacheConnectorV1")),
        case(V + NIXL),
    ),
    "vllm-nodes-executor": (
        case(V + " --nnodes 2 --distributed-executor-backend ray"),
        case(V + " --nnodes 2 --distributed-executor-backend mp"),
    ),
    "vllm-nodes-uneven": (case(V + " --nnodes 3"), case(V + " --nnodes 2")),
    "vllm-load-balancers": (
        case(V + " -dp 2 --data-parallel-hybrid-lb --data-parallel-external-lb"),
        case(V + " -dp 2 --data-parallel-hybrid-lb"),
    ),
    "vllm-hybrid-lb-local": (
        case(V + " -dp 2 --data-parallel-hybrid-lb --data-parallel-address 10.0.0.1"),
        case(V + " -dp 2 --data-parallel-hybrid-lb -dpa 10.0.0.1 --data-parallel-size-local 1"),
    ),
    "vllm-pipeline-timeout": (
        case(V + " -pp 2"),
        case(V + " -pp 2", environment={"VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS": "1800"}),
    ),
    "vllm-ray-pipeline": (
        case(V + " -pp 2 --distributed-executor-backend ray", version="0.18.0"),
        case(V + " -pp 2 --distributed-executor-backend ray"),
    ),
    "vllm-autotune-nodes": (
        case(V + " -pp 2 --enable-flashinfer-autotune", on="8x-b200", nodes=2),
        case(V + " -pp 2 --disable-flashinfer-autotune", on="8x-b200", nodes=2),
    ),
    "vllm-fp8-prefill-query": (
        case(V + " --kv-cache-dtype fp8"),
        case(V + " --kv-cache-dtype fp8" + QUERY),
    ),
    "vllm-fp8-backend": (
        case(V + " --kv-cache-dtype fp8" + QUERY, on="8x-h200", nodes=2),
        case(V + " --kv-cache-dtype fp8 --attention-backend FLASHMLA" + QUERY, on="8x-h200"),
    ),
    "vllm-backend-wants-fp8": (
        case(V + " --attention-backend TOKENSPEED_MLA"),
        case(V + " --attention-backend TOKENSPEED_MLA --kv-cache-dtype fp8" + QUERY),
    ),
    "vllm-cache-row": (case(V + " --kv-cache-dtype nvfp4"), case(V + " --kv-cache-dtype auto")),
    "vllm-backend-gpu": (
        case(V + " --attention-backend FLASHINFER_MLA", on="8x-h200"),
        case(V + " --attention-backend FLASHINFER_MLA", on="8x-b300"),
    ),
    "vllm-backend-block": (
        case(V + " --attention-backend FLASHMLA --block-size 96"),
        case(V + " --attention-backend FLASHMLA --block-size 768"),
    ),
    "vllm-batch-below-requests": (
        case(V + " --max-num-batched-tokens 64 --max-num-seqs 128"),
        case(V + " --max-num-batched-tokens 8192 --max-num-seqs 128"),
    ),
    "vllm-no-chunks": (
        case(V + " --disable-chunked-prefill --enable-prefix-caching"),
        case(V + " --enable-chunked-prefill --enable-prefix-caching"),
    ),
    "vllm-no-image-chunks": (
        case(V + " --disable-chunked-mm-input --enable-prefix-caching"),
        case(V + " --disable-chunked-mm-input"),
    ),
    "vllm-mamba-block": (
        case(V + " --mamba-block-size 768"),
        case(V + " --mamba-block-size 768 --enable-prefix-caching"),
    ),
    "vllm-state-dtype": (
        case(V + " --mamba-ssm-cache-dtype float16"),
        case(V + " --mamba-ssm-cache-dtype bfloat16"),
    ),
    "vllm-length": (
        case(V + " --max-model-len 2097152"),
        case(V + " --max-model-len 1048576"),
    ),
    "vllm-kda-prefill": (
        case(V + " --kda-prefill-backend flashinfer", on="8x-b300"),
        case(V + " --kda-prefill-backend flashkda", on="8x-b300"),
    ),
    "vllm-breakable-graphs": (
        case(V, on="8x-mi355x", kind=FileKind.SHELL),
        case(V, on="8x-mi355x", environment={"VLLM_USE_BREAKABLE_CUDAGRAPH": "0"}),
    ),
    "vllm-rocm-aiter-mla": (
        case(V + " --attention-backend ROCM_AITER_MLA", on="8x-mi355x"),
        case(V, on="8x-mi355x"),
    ),
    "vllm-day0-prefix-caching": (
        case(V + " --enable-prefix-caching", version="0.27.0"),
        case(V + " --enable-prefix-caching"),
    ),
    "vllm-memory-fraction": (
        case(V + " --gpu-memory-utilization 0.99"),
        case(V + " --gpu-memory-utilization 0.95"),
    ),
    "vllm-memory-outside-pool": (
        case(V + " -pp 2 --gpu-memory-utilization 0.95", on="8x-b200", nodes=2),
        case(V + " -pp 2 --gpu-memory-utilization 0.90", on="8x-b200", nodes=2),
    ),
    "vllm-long-chunks": (
        case(V + " -pp 2 --max-num-batched-tokens 16384", on="8x-h200", nodes=2),
        case(V + " -pp 2 --max-num-batched-tokens 4096", on="8x-h200", nodes=2),
    ),
    "runai-without-limit": (
        case(V + " --load-format runai_streamer"),
        case(
            V + " --load-format runai_streamer",
            environment={"RUNAI_STREAMER_MEMORY_LIMIT": "34359738368"},
        ),
    ),
    # SGLang
    "sglang-attention-dp-pair": (
        case(S + " --attn-dp-size 2 --dp-size 2"),
        case(S + " --attn-dp-size 2"),
    ),
    "sglang-dspark-pp": (
        case(S + SDSPARK + " --pp-size 2"),
        case(S + SDSPARK + " --pp-size 2 --disaggregation-mode prefill"),
    ),
    "sglang-dspark-path": (case(S + " --speculative-algorithm DSPARK"), case(S + SDSPARK)),
    "sglang-dspark-attention-dp": (
        case(S + SDSPARK + " --attn-dp-size 2"),
        case(S + SDSPARK + " --attn-dp-size 2 --enable-dp-lm-head"),
    ),
    "sglang-draft-budget": (
        case(S + SDSPARK + " --attn-dp-size 2", version="0.5.22"),
        case(S + SDSPARK + " --attn-dp-size 2"),
    ),
    "sglang-dspark-dcp": (
        case(S + SDSPARK + " --dcp-size 8"),
        case(S + SDSPARK + " --dcp-size 8", environment={"SGLANG_RAGGED_VERIFY_MODE": "static"}),
    ),
    "sglang-draft-requests": (case(S + SDSPARK), case(S + SDSPARK + " --max-running-requests 64")),
    "sglang-dspark-long": (
        case(S + SDSPARK, on="8x-b300", version="0.5.18"),
        case(S + SDSPARK, on="8x-b300"),
    ),
    "sglang-replayssm": (
        case(S + " --enable-linear-replayssm-spec --disaggregation-mode prefill"),
        case(S + " --enable-linear-replayssm-spec"),
    ),
    "sglang-extra-buffer": (
        case(S + " --mamba-radix-cache-strategy extra_buffer_lazy --disaggregation-mode decode"),
        case(S + " --mamba-radix-cache-strategy extra_buffer_lazy"),
    ),
    "sglang-no-buffer": (
        case(S + " --mamba-radix-cache-strategy no_buffer"),
        case(S + " --mamba-radix-cache-strategy no_buffer --disable-overlap-schedule"),
    ),
    "sglang-linear-decode": (
        case(S + " --linear-attn-decode-backend flashinfer"),
        case(S + " --linear-attn-decode-backend triton"),
    ),
    "sglang-stochastic-rounding": (
        case(S + " --enable-mamba-cache-stochastic-rounding"),
        case(S + " --enable-mamba-cache-stochastic-rounding --mamba-ssm-dtype float16"),
    ),
    "sglang-mega-moe": (
        case(S + " --moe-a2a-backend megamoe --chunked-prefill-size -1"),
        case(S + " --moe-a2a-backend megamoe --chunked-prefill-size 8192"),
    ),
    "sglang-attention-tp1": (
        case(S + " --attn-dp-size 8", on="8x-b300"),
        case(S + " --attn-dp-size 2", on="8x-b300"),
    ),
    "sglang-hierarchical-cache": (
        case(S + " --enable-hierarchical-cache --disable-radix-cache"),
        case(S + " --enable-hierarchical-cache"),
    ),
    "sglang-lmcache": (case(S + " --enable-lmcache --dcp-size 8"), case(S + " --enable-lmcache")),
    "sglang-dcp-backend": (
        case(S + " --dcp-size 8 --decode-attention-backend flashmla"),
        case(S + " --dcp-size 8 --decode-attention-backend cutedsl_mla"),
    ),
    "sglang-dcp-symmetric": (
        case(S + " --dcp-size 8 --enable-symm-mem"),
        case(S + " --enable-symm-mem"),
    ),
    "sglang-dcp-fabric": (
        case(S + " --dcp-size 8 --dcp-comm-backend fi_a2a", on="8x-b300"),
        case(S + " --dcp-size 8 --dcp-comm-backend fi_a2a", on="4x-gb300", nodes=2),
    ),
    "sglang-dcp-transfer": (
        case(
            S + " --dcp-size 8 --disaggregation-mode decode "
            "--disaggregation-transfer-backend mooncake_tcp"
        ),
        case(
            S + " --dcp-size 8 --disaggregation-mode decode --disaggregation-transfer-backend nixl"
        ),
    ),
    "sglang-cache-row": (
        case(S + " --kv-cache-dtype nvfp4"),
        case(S + " --kv-cache-dtype fp8_e4m3"),
    ),
    "sglang-cache-made-fp8": (
        case(S + " --attention-backend tokenspeed_mla"),
        case(S + " --attention-backend tokenspeed_mla --kv-cache-dtype fp8_e4m3"),
    ),
    "sglang-page-size": (
        case(S + " --decode-attention-backend flashmla --page-size 32"),
        case(S + " --decode-attention-backend flashmla --page-size 64"),
    ),
    "sglang-experts-gpu": (
        case(S + " --moe-runner-backend deep_gemm", on="8x-h200"),
        case(S + " --moe-runner-backend marlin", on="8x-h200"),
    ),
    "sglang-attention-gpu": (
        case(S + " --attention-backend trtllm_mla", on="8x-mi355x"),
        case(S + " --attention-backend triton", on="8x-mi355x"),
    ),
    "sglang-bootstrap-port": (
        case(S + " --disaggregation-mode prefill", router_ports=(9000,)),
        case(S + " --disaggregation-mode prefill", router_ports=(8998,)),
    ),
    "sglang-hopper-marlin": (
        case(S, on="8x-h200"),
        case(S + " --moe-runner-backend marlin", on="8x-h200"),
    ),
    "sglang-images-across-nodes": (
        case(S + " --nnodes 2 --mm-feature-transport cuda_ipc"),
        case(S + " --mm-feature-transport cuda_ipc"),
    ),
    "sglang-dp-encoder": (
        case(S + " --dcp-size 8 --mm-enable-dp-encoder"),
        case(S + " --mm-enable-dp-encoder"),
    ),
    "sglang-decode-slots": (
        case(S + " --disaggregation-mode decode", on="8x-b300"),
        case(
            S + " --disaggregation-mode decode --disaggregation-decode-extra-slots 16",
            on="8x-b300",
        ),
    ),
    "sglang-mooncake": (
        case(S + " --disaggregation-mode decode"),
        case(S + " --disaggregation-mode decode --disaggregation-transfer-backend nixl"),
    ),
    "sglang-graph-memory": (
        case(S + " --cuda-graph-max-bs-decode 1024"),
        case(S + " --cuda-graph-max-bs-decode 256"),
    ),
    "sglang-load-timeout": (
        case(S + " --nnodes 2 --dist-init-addr h:20000"),
        case(S + " --nnodes 2 --dist-init-addr h:20000 --watchdog-timeout 3600"),
    ),
    "sglang-nodes-address": (
        case(S + " --nnodes 2"),
        case(S + " --nnodes 2 --dist-init-addr h:20000"),
    ),
    "sglang-long-chunks": (
        case(S + " --chunked-prefill-size 16384", on="8x-h200"),
        case(S + " --chunked-prefill-size 8192", on="8x-h200"),
    ),
    "sglang-length": (case(S + " --context-length 2097152"), case(S + " --context-length 131072")),
    "sglang-dflash-prefix": (
        case(S + " --speculative-algorithm DFLASH", version="0.5.18"),
        case(S + " --speculative-algorithm DFLASH"),
    ),
    "sglang-early-crashes": (case(S, version="0.5.19"), case(S)),
    "sglang-early-hierarchical": (
        case(S + " --enable-hierarchical-cache", version="0.5.18"),
        case(S + " --enable-hierarchical-cache"),
    ),
    "sglang-early-buffers": (
        case(S + " --mamba-radix-cache-strategy extra_buffer", version="0.5.16"),
        case(S + " --mamba-radix-cache-strategy extra_buffer"),
    ),
    # TokenSpeed
    "tokenspeed-two-sizes": (case(T + " --attn-tp-size 8"), case(T)),
    "tokenspeed-expert-sizes": (case(T + " --ep-size 16"), case(T + " --ep-size 8")),
    "tokenspeed-expert-tp": (
        case(T + " --moe-tp-size 2 --ep-size 4"),
        case(T + " --ep-size 8"),
    ),
    "tokenspeed-pipeline": (
        case(T + " --pipeline-parallel-size 2"),
        case(T + " --pipeline-parallel-size 2 --disaggregation-mode prefill"),
    ),
    "tokenspeed-dcp": (
        case(T + " --decode-context-parallel-size 8 --speculative-algorithm DSPARK"),
        case(T + " --decode-context-parallel-size 8"),
    ),
    "tokenspeed-vision-ranks": (case(T.replace(" --mm-encoder-tp-mode data", "")), case(T)),
    "tokenspeed-moe-backend": (
        case(T + " --moe-backend triton"),
        case(T + " --moe-backend flashinfer_trtllm", on="8x-b300"),
    ),
    "tokenspeed-draft-steps": (
        case(
            T + " --speculative-algorithm DSPARK --speculative-num-draft-tokens 8 "
            "--speculative-num-steps 8"
        ),
        case(
            T + " --speculative-algorithm DSPARK --speculative-num-draft-tokens 8 "
            "--speculative-num-steps 7"
        ),
    ),
    "tokenspeed-kvstore": (
        case(T.replace(" --disable-kvstore", "") + " --disable-prefix-caching"),
        case(T + " --disable-prefix-caching"),
    ),
    "tokenspeed-sampling-amd": (
        case(T, on="8x-mi355x"),
        case(T + " --sampling-backend triton", on="8x-mi355x"),
    ),
    "tokenspeed-nodes-address": (
        case(T + " --nnodes 2"),
        case(T + " --nnodes 2 --dist-init-addr h:20000"),
    ),
    "tokenspeed-instant-tensor": (
        case(T + " --load-format instanttensor"),
        case(T + " --load-format safetensors"),
    ),
    "tokenspeed-all-to-all": (
        case(T + " --all2all-backend agrs"),
        case(T + " --all2all-backend agrs --data-parallel-size 8"),
    ),
    "tokenspeed-acceptance": (
        case(T + TDSPARK + "someone/else"),
        case(T + TDSPARK + "Inferact/Kimi-K3-DSpark"),
    ),
    "tokenspeed-arm-graphs": (
        case(T + " --nnodes 2 --dist-init-addr h:20000", on="4x-gb300", nodes=2),
        case(T, on="8x-b300"),
    ),
    # where it runs
    "container-shm": (
        case(V, container=box(host_ipc=False), kind=FileKind.DOCKER),
        case(V, container=box(host_ipc=False, shm_bytes=64 << 30), kind=FileKind.DOCKER),
    ),
    "container-gpus": (
        case(V, container=box(has_gpus=False), kind=FileKind.COMPOSE),
        case(V, container=box(), kind=FileKind.COMPOSE),
    ),
    "container-few-gpus": (
        case(V, container=box(gpus=4), kind=FileKind.KUBERNETES, nodes=1),
        case(V, container=box(gpus=8), kind=FileKind.KUBERNETES, nodes=1),
    ),
    "container-memlock": (
        case(V + NIXL, container=box(), kind=FileKind.DOCKER, environment=DS),
        case(V + NIXL, container=box(memlock_unlimited=True), kind=FileKind.DOCKER, environment=DS),
    ),
    "pod-ipc-lock": (
        case(V, container=box(rdma=True), kind=FileKind.KUBERNETES),
        case(V, container=box(rdma=True, capabilities=("IPC_LOCK",)), kind=FileKind.KUBERNETES),
    ),
    "unit-memlock": (
        case(V + " --nnodes 2 --master-addr h", container=box(), kind=FileKind.SYSTEMD),
        case(
            V + " --nnodes 2 --master-addr h",
            container=box(memlock_unlimited=True),
            kind=FileKind.SYSTEMD,
        ),
    ),
    "nodes-interface": (
        case(V + " --nnodes 2 --master-addr h", kind=FileKind.SHELL),
        case(
            V + " --nnodes 2 --master-addr h",
            kind=FileKind.SHELL,
            environment={"NCCL_SOCKET_IFNAME": "eth0", "GLOO_SOCKET_IFNAME": "eth0"},
        ),
    ),
    "nodes-loopback": (
        case(V + " --nnodes 2", environment={"NCCL_SOCKET_IFNAME": "lo"}),
        case(V + " --nnodes 2", environment={"NCCL_SOCKET_IFNAME": "eth0"}),
    ),
    "nodes-local-address": (
        case(V + " --nnodes 2"),
        case(V + " --nnodes 2 --master-addr 10.0.0.1"),
    ),
    "image-first-day": (
        case(V, container=box(image="vllm/vllm-openai:kimi-k3")),
        case(V, container=box(image="vllm/vllm-openai:v0.33.0")),
    ),
    "image-floating": (
        case(V, container=box(image="vllm/vllm-openai")),
        case(V, container=box(image="vllm/vllm-openai:v0.33.0")),
    ),
    "startup-probe": (
        case(V, container=box(startup_seconds=300.0)),
        case(V, container=box(startup_seconds=7200.0)),
    ),
    "ready-timeout": (
        case(V, environment={"VLLM_ENGINE_READY_TIMEOUT_S": "600"}),
        case(V, environment={"VLLM_ENGINE_READY_TIMEOUT_S": "3600"}),
    ),
    "host-memory": (
        case(V, container=box(host_memory_bytes=64 << 30)),
        case(V, container=box(host_memory_bytes=700 << 30)),
    ),
    "slurm-few-gpus": (
        case(V, told_gpus_per_node=4, kind=FileKind.SBATCH),
        case(V, told_gpus_per_node=8, kind=FileKind.SBATCH),
    ),
    "visible-gpus": (
        case(V, environment={"CUDA_VISIBLE_DEVICES": "0,1,2,3"}),
        case(V, environment={"CUDA_VISIBLE_DEVICES": "0,1,2,3,4,5,6,7"}),
    ),
    "nccl-symmetric-memory": (
        case(V, environment={"VLLM_USE_NCCL_SYMM_MEM": "1"}),
        case(V, environment={"VLLM_USE_NCCL_SYMM_MEM": "0"}),
    ),
    "shm-left-behind": (
        case(V + " -dp 8", container=box()),
        case(V, container=box()),
    ),
    "nccl-dmabuf": (
        case(V, environment={"NCCL_DMABUF_ENABLE": "1"}),
        case(V, environment={"NCCL_DMABUF_ENABLE": "0"}),
    ),
    # several nodes
    "nodes-not-told": (
        case(V.replace("-tp 8", "-tp 16"), on="8x-b300", nodes=2),
        case(
            V.replace("-tp 8", "-tp 16 --distributed-executor-backend ray"), on="8x-b300", nodes=2
        ),
    ),
    "nodes-local-groups": (
        case(V + " -dp 4 --data-parallel-size-local 2", on="8x-b300", nodes=2),
        case(V + " -dp 2 --data-parallel-size-local 1", on="8x-b300", nodes=2),
    ),
    "sglang-expert-groups": (
        case(S + " --ep-size 8 --moe-dp-size 2"),
        case(S + " --ep-size 4 --moe-dp-size 2"),
    ),
    "sglang-track-interval": (
        case(
            S + " --mamba-radix-cache-strategy extra_buffer --page-size 64"
            " --mamba-track-interval 100"
        ),
        case(
            S + " --mamba-radix-cache-strategy extra_buffer --page-size 64"
            " --mamba-track-interval 128"
        ),
    ),
    "vllm-kda-decode": (
        case(V + DSPARK.replace(":7}", ":8}") + " --kda-decode-backend flashinfer"),
        case(V + DSPARK + " --kda-decode-backend flashinfer"),
    ),
    "vllm-block-raised": (
        case(V + " --block-size 16", on="8x-b300"),
        case(V + " --block-size 1536", on="8x-b300"),
    ),
}
