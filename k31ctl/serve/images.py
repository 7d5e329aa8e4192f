"""The container image of a release, by the naming of its project."""

from typing import Final

from k31ctl.core.release import release_key

_IMAGES: Final = {
    ("vllm", False): "vllm/vllm-openai:v{version}",
    ("vllm", True): "vllm/vllm-openai-rocm:v{version}",
    ("sglang", False): "lmsysorg/sglang:v{version}",
    ("sglang", True): "lmsysorg/sglang:v{version}-rocm720-mi35x",
}
_NIGHTLY: Final = {("vllm", "main"): "vllm/vllm-openai:nightly"}


def usual_image(engine: str, version: str, *, amd: bool) -> str | None:
    """The image that the project names for a release; None where no rule is known."""
    if release_key(version) is None:
        return None if amd else _NIGHTLY.get((engine, version))
    pattern = _IMAGES.get((engine, amd))
    return pattern.format(version=version) if pattern else None
