"""Asking a running server for its version, its arguments and its capacity."""

import re
from collections.abc import Mapping
from typing import Any, Final

from k31ctl.core.rules.readback import Running
from k31ctl.errors import EndpointError, UsageError
from k31ctl.outside_json import parsed
from k31ctl.shown_address import shown_address

MOST_BYTES: Final = 8 << 20
TIMEOUT_S: Final = 10.0
_INFO: Final = re.compile(r"^vllm:cache_config_info\{(.*)\} ", re.MULTILINE)
_LABEL: Final = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


def running_server(engine: str, url: str) -> Running:
    """Return what the server at an address says of itself; EndpointError where it does not."""
    base = url.rstrip("/").removesuffix("/v1")
    if not base.startswith(("http://", "https://")) or any(mark in base for mark in "?#@"):
        raise UsageError(
            f"{shown_address(url)!r} is not the address of a server alone",
            where="--readback",
            remedy="write it as http://localhost:8000",
        )
    if engine == "vllm":
        return _vllm(base)
    return _sglang(base) if engine == "sglang" else _tokenspeed(base)


def _vllm(base: str) -> Running:
    version = _json(base, "/version")
    models = _json(base, "/v1/models").get("data")
    first = models[0] if isinstance(models, list) and models else {}
    metrics = _text(base, "/metrics")
    found = _INFO.search(metrics)
    if found is None:
        raise EndpointError(
            "there is no vllm:cache_config_info among the metrics",
            where=f"{base}/metrics",
            remedy="name the engine's own address, not a router's",
        )
    labels: dict[str, object] = dict(_LABEL.findall(found[1]))
    settings = {
        "gpu_memory_utilization": labels.get("gpu_memory_utilization", ""),
        "kv_cache_dtype": labels.get("cache_dtype", ""),
        "enable_prefix_caching": labels.get("enable_prefix_caching", ""),
        "max_model_len": first.get("max_model_len", ""),
    }
    return Running(
        source=f"{base}/metrics, {base}/version",
        version=str(version.get("version", "")),
        model=str(first.get("id", "")),
        settings={name: value for name, value in settings.items() if value not in ("", None)},
        blocks=_whole(labels.get("num_gpu_blocks")),
    )


def _sglang(base: str) -> Running:
    info = _json(base, "/server_info")
    states = info.get("internal_states")
    state = states[0] if isinstance(states, list) and states else {}
    tokens = info.get("max_total_num_tokens") or state.get("max_total_num_tokens")
    return Running(
        source=f"{base}/server_info",
        version=str(info.get("version", "")),
        model=str(info.get("served_model_name") or info.get("model_path") or ""),
        settings={name: value for name, value in info.items() if value is not None},
        tokens=_whole(tokens),
    )


def _tokenspeed(base: str) -> Running:
    info = _json(base, "/get_model_info")
    return Running(
        source=f"{base}/get_model_info",
        version=str(info.get("version", "")),
        model=str(info.get("served_model_name") or info.get("model_path") or ""),
        settings={name: value for name, value in info.items() if value is not None},
        tokens=_whole(info.get("max_total_num_tokens")),
    )


def _whole(value: object) -> int | None:
    text = str(value)
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None  # noqa: PLR2004


def _json(base: str, path: str) -> Mapping[str, Any]:
    try:
        found = parsed(_text(base, path))
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise EndpointError(
            "the answer is not a JSON object",
            where=f"{base}{path}",
            remedy="name the address of a vLLM, SGLang or TokenSpeed server",
        )
    return found


def _text(base: str, path: str) -> str:
    import httpx  # noqa: PLC0415  only a readback needs it

    try:
        with httpx.stream("GET", f"{base}{path}", timeout=TIMEOUT_S) as answer:
            if answer.status_code != httpx.codes.OK:
                raise EndpointError(
                    f"the server answers {answer.status_code}",
                    where=f"{base}{path}",
                    remedy="name the engine's own address, not a router's",
                )
            content = b""
            for part in answer.iter_bytes():
                content += part
                if len(content) > MOST_BYTES:
                    raise EndpointError(
                        f"the answer is larger than {MOST_BYTES >> 20} MiB",
                        where=f"{base}{path}",
                        remedy="name the address of a vLLM, SGLang or TokenSpeed server",
                    )
            return content.decode("utf-8", "replace")
    except (httpx.HTTPError, httpx.InvalidURL, UnicodeError) as error:
        raise EndpointError(
            f"no answer: {str(error)[:120] or type(error).__name__}".lower(),
            where=f"{base}{path}",
            remedy="start the server, or name its address: --readback http://HOST:PORT",
        ) from None
