"""What makes a server one of two pools, by its engine; and the router before them."""

from typing import Final

from k31ctl.core.recipe import Role
from k31ctl.serve.ledger import Ledger
from k31ctl.serve.reasons import variable_reason
from k31ctl.serve.rollout import NodeValue, Router, Server, Standing, Where, Word

BOOTSTRAP_PORT: Final = 8998
MODE: Final = "--disaggregation-mode"
ROUTER_PORT: Final = {"sglang": 8000, "vllm": 8080}
_NEVER_S: Final = 999_999
_WAIT_S: Final = 7200
_SGLANG: Final = "sgl-project/sglang cookbook Kimi-K3, disaggregation"
_VLLM: Final = "vllm-project/recipes models/moonshotai/Kimi-K3.yaml, disaggregation"
_NIXL: Final = "NIXL's side channel: nixl issue 1614"
_VLLM_FLAGS: Final[dict[str, tuple[object, str]]] = {
    "--kv-transfer-config": (
        {"kv_connector": "NixlConnector", "kv_role": "kv_both"},
        "moves the cache from prefill to decode",
    ),
    "--disable-hybrid-kv-cache-manager": (
        False,
        "a hybrid model with a connector needs the manager",
    ),
}
_SIDE_CHANNEL: Final = "VLLM_NIXL_SIDE_CHANNEL_HOST"
_LAYOUT: Final = "VLLM_SSM_CONV_STATE_LAYOUT"


def role_settings(ledger: Ledger, role: Role, *, engine: str) -> None:
    """Put what makes a server one half; a recipe for the role says the same."""
    if role not in (Role.PREFILL, Role.DECODE):
        return
    if engine == "sglang":
        _sglang(ledger, role)
    elif engine == "vllm":
        _vllm(ledger)


def _sglang(ledger: Ledger, role: Role) -> None:
    values: dict[str, object] = {
        MODE: role.value,
        "--disaggregation-transfer-backend": "nixl",
    }
    if role is Role.PREFILL:
        values["--disaggregation-bootstrap-port"] = BOOTSTRAP_PORT
    for flag, value in values.items():
        ledger.settle(
            flag,
            value,
            "this pool does one half of the work" if flag == MODE else "joins the two pools",
            source=_SGLANG,
            standing=Standing.DERIVED,
        )


def _vllm(ledger: Ledger) -> None:
    """Both pools are told the same; the router makes one prefill and the other decode."""
    for flag, (value, reason) in _VLLM_FLAGS.items():
        ledger.settle(flag, value, reason, source=_VLLM, standing=Standing.PUBLISHED)
    ledger.drop("--data-parallel-hybrid-lb", "the router is given one address for each pool")
    ledger.export(
        _LAYOUT, "DS", variable_reason(_LAYOUT), source=_VLLM, standing=Standing.PUBLISHED
    )
    ledger.export(
        _SIDE_CHANNEL,
        NodeValue(where=Where.NODE_ADDRESS),
        variable_reason(_SIDE_CHANNEL),
        source=_NIXL,
        standing=Standing.DERIVED,
    )


def router(engine: str, prefill: Server, decode: Server) -> Router:
    """Return the engine's own router of two pools."""
    first = NodeValue(where=Where.PREFILL, before="http://", after=f":{prefill.port}")
    second = NodeValue(where=Where.DECODE, before="http://", after=f":{decode.port}")
    port = ROUTER_PORT[engine]
    listens: tuple[Word, ...] = ("--host", "0.0.0.0", "--port", str(port))
    if engine == "vllm":
        return Router(
            program=("vllm-router",),
            words=(
                "--vllm-pd-disaggregation",
                *("--prefill", first, "--decode", second),
                *listens,
                *("--worker-startup-timeout-secs", str(_WAIT_S)),
            ),
            port=port,
            image="vllm/vllm-router:nightly",
            note="the router is a package of its own: `pip install vllm-router` (0.1.17 or later)",
        )
    # The prefill server's bootstrap port stands beside its address.
    return Router(
        program=("python3", "-m", "sglang_router.launch_router"),
        words=(
            "--pd-disaggregation",
            *("--prefill", first, str(BOOTSTRAP_PORT), "--decode", second),
            *listens,
            *("--disable-circuit-breaker", "--health-check-interval-secs", str(_NEVER_S)),
        ),
        port=port,
    )
