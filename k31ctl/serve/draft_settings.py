"""The settings by which an engine takes a draft model."""

from collections.abc import Mapping
from typing import Final

from k31ctl.core.draft import Draft
from k31ctl.core.recipe import Role

CONFIG: Final = "--speculative-config"
ALGORITHM: Final = "--speculative-algorithm"
_PATH: Final = "--speculative-draft-model-path"
_REPLAY: Final = "--enable-linear-replayssm-spec"


def is_speculation(flag: str) -> bool:
    """Whether a flag is about a draft model alone."""
    return flag.startswith(("--speculative-", "--drafter-")) or flag == _REPLAY


def draft_settings(
    engine: str, draft: Draft, *, tokens: int, flags: Mapping[str, object], role: Role, gpu: str
) -> dict[str, object]:
    """Return the flags that make an engine speculate with a draft, over those that it has."""
    method = "dflash" if "dflash" in draft.id else "dspark"
    match engine:
        case "vllm":
            written = flags.get(CONFIG)
            known = dict(written) if isinstance(written, dict) else {}
            asked = {"method": method, "model": draft.name, "num_speculative_tokens": tokens}
            usual = {"draft_sample_method": "probabilistic", "rejection_sample_method": "block"}
            return {CONFIG: {**usual, **known, **asked}}
        case "sglang":
            found: dict[str, object] = {ALGORITHM: method.upper(), _PATH: draft.name}
            if method == "dspark":
                found["--speculative-dspark-block-size"] = tokens
            else:
                found["--speculative-num-draft-tokens"] = tokens
            if role is not Role.PREFILL:
                found[_REPLAY] = True
            if isinstance(flags.get("--attn-dp-size"), int):
                found["--enable-dp-lm-head"] = True
            return found
        case "tokenspeed":
            backend = "trtllm_mla" if gpu in ("sm_100", "sm_103") else "mla"
            return {
                ALGORITHM: method.upper(),
                _PATH: draft.name,
                "--speculative-num-draft-tokens": tokens + 1,
                "--speculative-num-steps": tokens,
                "--drafter-attention-backend": flags.get("--drafter-attention-backend", backend),
            }
        case _:
            return {}
