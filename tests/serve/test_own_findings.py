"""What ``serve`` writes passes its own checks, and what would not is refused."""

import pytest

from k31ctl.core.kv_cache import KvFormat
from k31ctl.core.rules import Severity
from k31ctl.errors import RefusedError
from k31ctl.serve.gather import gather
from k31ctl.serve.launch_files import launch_files, rollout
from k31ctl.serve.lint import Asked, lint
from k31ctl.serve.own_findings import own_findings, refuse_errors
from k31ctl.serve.read.launch_file import launches_in
from k31ctl.serve.read.source import source_of
from k31ctl.serve.rollout import Rollout
from tests.serve.launches import NOWHERE, STORE, asked, launch, parts

_SPREAD = (
    ("8x-b200", 2),
    ("8x-b200", 4),
    ("8x-h200", 4),
    ("8x-mi355x", 2),
    ("8x-mi350x", 2),
)
_ALWAYS = {"--mm-encoder-tp-mode": "data", "--disable-kvstore": True, "--kv-cache-dtype": "fp8"}


def _settings(made: Rollout) -> dict[str, object]:
    (server,) = made.servers
    return {choice.flag: choice.value for choice in server.choices}


@pytest.mark.parametrize(("on", "nodes"), _SPREAD)
def test_tokenspeed_keeps_what_the_model_always_needs_on_any_number_of_nodes(
    on: str, nodes: int
) -> None:
    gathered = parts(engine="tokenspeed", on=on)
    made = rollout(gathered, asked(nodes=nodes), NOWHERE)
    settings = _settings(made)
    assert {flag: settings[flag] for flag in _ALWAYS} == _ALWAYS
    assert "--enable-expert-parallel" not in settings
    refuse_errors(own_findings(STORE, gathered, launch_files(made, asked().target), made))


def test_a_cache_type_that_is_asked_for_goes_before_the_usual_one() -> None:
    made = launch(engine="tokenspeed", on="8x-b200", nodes=2, kv_dtype=KvFormat.BF16)
    assert _settings(made)["--kv-cache-dtype"] == "bfloat16"


def test_an_image_that_is_taken_for_a_branch_is_checked_as_it() -> None:
    gathered = gather(
        STORE, model="kimi-k3.1-pro", engine="vllm@0.33.0", on="8x-b300", draft=None, image="x/y:1"
    )
    made = rollout(gathered, asked(image="x/y:1"), NOWHERE)
    refuse_errors(own_findings(STORE, gathered, launch_files(made, asked().target), made))


def test_an_error_of_the_checks_is_a_refusal_with_its_rule_and_source() -> None:
    script = b"exec ts serve moonshotai/Kimi-K3 --tensor-parallel-size 16 --nnodes 2\n"
    (found,) = launches_in(source_of(script, name="launch.sh"))
    told = lint(STORE, found, Asked(hardware="8x-b200", nodes=2), name="launch.sh").findings
    with pytest.raises(RefusedError) as caught:
        refuse_errors(told)
    assert caught.value.exit_code == 4
    first = next(finding for finding in told if finding.severity is Severity.ERROR)
    assert (caught.value.rule, caught.value.source) == (first.id, first.source)
    assert "--force" in caught.value.remedy
