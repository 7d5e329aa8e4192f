"""The reports that the rules came from, by number, where no rule of a launch can cover one."""

from typing import Final

ELSEWHERE: Final = {
    11: "Kimi Linear with an old aiter: a version of the host's ROCm stack, which doctor reads",
    15: "the report itself is stale: prefix caching stays on, and no rule speaks against it",
    16: "a tracking issue without a failure of its own",
    34: "a hang of another model on vLLM 0.26 to 0.28, releases that are refused for Kimi K3 "
    "before 0.27.1",
    38: "an assertion of an early decode-context parallelism, fixed before the first release that "
    "reads Kimi K3",
    40: "Kimi K2.6 on 0.22.0, older than the first release that reads Kimi K3",
    52: "TensorRT-LLM, whose launches are not read yet; file limits and caches are doctor's",
}
