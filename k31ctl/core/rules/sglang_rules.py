"""Rules of SGLang about layouts, experts, transfers and several nodes."""

from collections.abc import Iterable
from typing import Final

from k31ctl.core.finding import Severity
from k31ctl.core.rules.context import BLACKWELL, LaunchContext
from k31ctl.core.rules.finding import Change
from k31ctl.core.rules.rule import NOTHING, Hit, Rule, drop, hit

_NO_CONTEXT_PARALLEL: Final = (
    "dsa",
    "fa3",
    "fa4",
    "flashinfer",
    "flashmla",
    "flex_attention",
    "nsa",
    "tokenspeed_mla",
    "torch_native",
    "triton",
    "trtllm_mha",
    "trtllm_mla",
    "wave",
)
_BOOTSTRAP_PORT: Final = 8998
_ALL_OR_NONE: Final = ("flashinfer_cutlass", "flashinfer_cutedsl", "cutedsl")


def _two_kinds_of_dp(context: LaunchContext) -> Iterable[Hit]:
    if context.number("--attn-dp-size", 1) <= 1 or context.number("--dp-size", 1) <= 1:
        return NOTHING
    message = "--attn-dp-size does not go with --dp-size above 1"
    return hit(context, message, "--attn-dp-size", "--dp-size", change=drop(context, "--dp-size"))


def _mega_moe(context: LaunchContext) -> Iterable[Hit]:
    if context.text("--moe-a2a-backend") != "megamoe":
        return NOTHING
    name = "SGLANG_OPT_DEEPGEMM_MEGA_MOE_NUM_MAX_TOKENS_PER_RANK"
    chunk = context.number("--chunked-prefill-size", 0)
    if chunk < 0:
        return hit(context, "MegaMoE needs chunked prefill", "--chunked-prefill-size")
    overlap = [
        f
        for f in ("--enable-two-batch-overlap", "--enable-single-batch-overlap")
        if context.value(f)
    ]
    if overlap:
        return hit(context, f"MegaMoE does not go with {overlap[0]}", *overlap)
    given = context.variable(name)
    per_rank = chunk / context.attention_dp
    if given.isdigit() and int(given) < per_rank:
        return hit(
            context,
            f"{name}={given} is below the {per_rank:g} tokens of a prefill chunk on a rank",
            "--chunked-prefill-size",
            variable=name,
        )
    return NOTHING


def _expert_groups(context: LaunchContext) -> Iterable[Hit]:
    tp, ep, groups = context.size("tp"), context.ep, int(context.number("--moe-dp-size", 1))
    if groups > 1 and ep * groups != tp:
        message = f"--ep-size {ep} times --moe-dp-size {groups} must be --tp-size {tp}"
        return hit(context, message, "--moe-dp-size", "--ep-size")
    runner = context.text("--moe-runner-backend")
    if runner in _ALL_OR_NONE and ep not in (1, tp):
        message = f"{runner} takes an expert parallelism of 1 or {tp}, not {ep}"
        return hit(context, message, "--ep-size", "--moe-runner-backend")
    return NOTHING


def _attention_rank_of_one(context: LaunchContext) -> Iterable[Hit]:
    groups = context.attention_dp
    if not context.is_k3 or groups == 1 or context.attention_tp > 1 or not context.node:
        return NOTHING
    if context.ranks > 8:  # noqa: PLR2004
        return NOTHING
    message = "attention on single ranks keeps all its weights on each GPU and runs out of memory"
    return hit(context, message, "--attn-dp-size", "--dp-size", remedy="write --attn-dp-size 2")


def _context_backend(context: LaunchContext) -> Iterable[Hit]:
    flags = ("--decode-attention-backend", "--attention-backend")
    flag = next((flag for flag in flags if context.has(flag)), "")
    backend = context.text(flag)
    if context.size("dcp") == 1 or backend not in _NO_CONTEXT_PARALLEL:
        return NOTHING
    message = f"decode-context parallelism does not decode with {flag} {backend}"
    return hit(context, message, flag, "--dcp-size", remedy=f"leave {flag} out")


def _context_symmetric(context: LaunchContext) -> Iterable[Hit]:
    if context.size("dcp") == 1 or not context.value("--enable-symm-mem"):
        return NOTHING
    message = "decode-context parallelism switches --enable-symm-mem off"
    return hit(context, message, "--enable-symm-mem", change=drop(context, "--enable-symm-mem"))


def _context_fabric(context: LaunchContext) -> Iterable[Hit]:
    node = context.node
    if context.text("--dcp-comm-backend") != "fi_a2a" or node is None:
        return NOTHING
    if node.scale_up_domain_gpus > node.num_gpus:
        return NOTHING
    message = "fi_a2a needs an NVLink fabric over the nodes, as GB200 and GB300 have"
    return hit(context, message, "--dcp-comm-backend")


def _context_transfer(context: LaunchContext) -> Iterable[Hit]:
    backend = context.text("--disaggregation-transfer-backend") or "mooncake"
    if context.role != "decode" or context.size("dcp") == 1:
        return NOTHING
    if backend in ("mooncake", "nixl", "mori", "ascend"):
        return NOTHING
    message = f"decode-context parallelism is not served by the transfer backend {backend}"
    return hit(context, message, "--disaggregation-transfer-backend")


def _images_across_nodes(context: LaunchContext) -> Iterable[Hit]:
    flag = "--mm-feature-transport"
    if context.text(flag) != "cuda_ipc" or context.size("nnodes") == 1:
        return NOTHING
    message = "cuda_ipc carries images within one node only"
    return hit(context, message, flag, change=drop(context, flag))


def _dp_encoder(context: LaunchContext) -> Iterable[Hit]:
    flag = "--mm-enable-dp-encoder"
    if not context.value(flag) or context.size("dcp") == 1:
        return NOTHING
    return hit(context, f"{flag} does not go with decode-context parallelism", flag)


def _extra_slots(context: LaunchContext) -> Iterable[Hit]:
    flag = "--disaggregation-decode-extra-slots"
    if context.role != "decode" or context.has(flag) or context.gpu not in BLACKWELL:
        return NOTHING
    return hit(
        context,
        "unset, no extra slots are kept above 32 requests, so transfers wait for a free one",
        "--disaggregation-mode",
        change=Change(add=(flag, "16")),
    )


def _bootstrap_port(context: LaunchContext) -> Iterable[Hit]:
    flag, ports = "--disaggregation-bootstrap-port", context.router_ports
    port = int(context.number(flag, _BOOTSTRAP_PORT))
    if context.role != "prefill" or not ports or port in ports:
        return NOTHING
    told = ", ".join(map(str, ports))
    return hit(
        context,
        f"{flag} is {port} and the router's --prefill says {told}: only the decode server "
        "registers with the router",
        flag,
        "--disaggregation-mode",
        remedy=f"write {flag} {ports[0]}, or the same port behind --prefill URL",
    )


def _mooncake(context: LaunchContext) -> Iterable[Hit]:
    flag = "--disaggregation-transfer-backend"
    if not context.role or (context.text(flag) or "mooncake") not in ("mooncake", "mooncake_tcp"):
        return NOTHING
    message = "Mooncake lost cache transfers under sustained load"
    return hit(context, message, flag, "--disaggregation-mode")


def _timeouts(context: LaunchContext) -> Iterable[Hit]:
    flags = ("--watchdog-timeout", "--dist-timeout")
    if not context.is_k3 or context.size("nnodes") == 1 or any(map(context.has, flags)):
        return NOTHING
    return hit(
        context,
        "loading over several nodes takes longer than the watchdog's 300 s",
        "--nnodes",
        change=Change(add=("--watchdog-timeout", "3600")),
    )


def _no_address(context: LaunchContext) -> Iterable[Hit]:
    if context.size("nnodes") == 1 or context.has("--dist-init-addr"):
        return NOTHING
    return hit(context, "--nnodes needs --dist-init-addr HEAD:PORT", "--nnodes")


def _old_crashes(context: LaunchContext) -> Iterable[Hit]:
    if not context.is_k3:
        return NOTHING
    message = f"Kimi K3 crashed and gave odd output under load on SGLang {context.version}"
    return hit(context, message)


SGLANG_RULES: Final = (
    Rule(
        id="sglang-attention-dp-pair",
        severity=Severity.ERROR,
        about="both kinds of data parallelism are set",
        remedy="leave --dp-size out",
        source="SGLang 0.5.23 srt/server_args.py",
        check=_two_kinds_of_dp,
        engines=("sglang",),
    ),
    Rule(
        id="sglang-expert-groups",
        absence=True,
        severity=Severity.ERROR,
        about="expert parallelism does not fit the tensor parallelism",
        remedy="use an --ep-size that fills --tp-size",
        source="SGLang 0.5.23 srt/server_args.py",
        check=_expert_groups,
        engines=("sglang",),
    ),
    Rule(
        id="sglang-mega-moe",
        severity=Severity.ERROR,
        about="MegaMoE stands beside what it refuses",
        remedy="take another --moe-a2a-backend, or mend the setting",
        source="SGLang 0.5.23 srt/server_args.py",
        check=_mega_moe,
        engines=("sglang",),
    ),
    Rule(
        id="sglang-attention-tp1",
        severity=Severity.WARNING,
        about="attention data parallelism leaves one rank to a group on eight GPUs",
        remedy="write --attn-dp-size 2, which makes groups of TP 4",
        source="SGLang cookbook, Kimi-K3",
        check=_attention_rank_of_one,
        engines=("sglang",),
    ),
    Rule(
        id="sglang-dcp-backend",
        severity=Severity.ERROR,
        about="decode-context parallelism decodes with a backend that has none",
        remedy="leave --decode-attention-backend out",
        source="SGLang 0.5.23 srt/server_args.py",
        check=_context_backend,
        engines=("sglang",),
    ),
    Rule(
        id="sglang-dcp-symmetric",
        severity=Severity.WARNING,
        about="symmetric memory is asked for beside decode-context parallelism",
        remedy="leave --enable-symm-mem out",
        source="SGLang 0.5.23 srt/server_args.py",
        check=_context_symmetric,
        engines=("sglang",),
    ),
    Rule(
        id="sglang-dcp-fabric",
        severity=Severity.ERROR,
        about="fi_a2a is chosen without an NVLink fabric",
        remedy="leave --dcp-comm-backend out, or write a2a",
        source="SGLang 0.5.23 srt/server_args.py",
        check=_context_fabric,
        engines=("sglang",),
    ),
    Rule(
        id="sglang-dcp-transfer",
        severity=Severity.ERROR,
        about="a decode server with decode-context parallelism has another transfer backend",
        remedy="write --disaggregation-transfer-backend nixl, mooncake, mori or ascend",
        source="SGLang 0.5.23 srt/server_args.py",
        check=_context_transfer,
        engines=("sglang",),
    ),
    Rule(
        id="sglang-images-across-nodes",
        severity=Severity.ERROR,
        about="images travel by cuda_ipc over several nodes",
        remedy="leave --mm-feature-transport out",
        source="SGLang cookbook, Kimi-K3",
        check=_images_across_nodes,
        engines=("sglang",),
    ),
    Rule(
        id="sglang-dp-encoder",
        severity=Severity.ERROR,
        about="the encoder is data-parallel beside decode-context parallelism",
        remedy="leave --mm-enable-dp-encoder out",
        source="SGLang cookbook, Kimi-K3",
        check=_dp_encoder,
        engines=("sglang",),
    ),
    Rule(
        id="sglang-decode-slots",
        absence=True,
        severity=Severity.INFO,
        about="a decode server keeps no extra slots",
        remedy="add --disaggregation-decode-extra-slots 16",
        source="SGLang cookbook, Kimi-K3",
        check=_extra_slots,
        engines=("sglang",),
    ),
    Rule(
        id="sglang-bootstrap-port",
        severity=Severity.ERROR,
        about="the router of the same file knows a prefill server by another bootstrap port",
        remedy="write the same port in both places",
        source="SGLang cookbook, Kimi-K3",
        check=_bootstrap_port,
        engines=("sglang",),
    ),
    Rule(
        id="sglang-mooncake",
        severity=Severity.WARNING,
        about="caches travel by Mooncake",
        remedy="write --disaggregation-transfer-backend nixl",
        source="sgl-project/sglang#23272",
        check=_mooncake,
        failures=(27,),
        engines=("sglang",),
    ),
    Rule(
        id="sglang-load-timeout",
        absence=True,
        severity=Severity.WARNING,
        about="several nodes load under the usual time limits",
        remedy="add --watchdog-timeout 3600",
        source="sgl-project/sglang#12289",
        check=_timeouts,
        failures=(24,),
        engines=("sglang",),
    ),
    Rule(
        id="sglang-nodes-address",
        absence=True,
        severity=Severity.ERROR,
        about="several nodes have no address to meet at",
        remedy="add --dist-init-addr HEAD:20000",
        source="SGLang 0.5.23 srt/server_args.py",
        check=_no_address,
        engines=("sglang",),
    ),
    Rule(
        id="sglang-early-crashes",
        severity=Severity.WARNING,
        about="Kimi K3 is served with a release before September 2026",
        remedy="use 0.5.23",
        source="sgl-project/sglang#34260, sgl-project/sglang#36859",
        check=_old_crashes,
        failures=(18, 20),
        until="0.5.20",
        engines=("sglang",),
    ),
)
