import pytest

from k31ctl import errors
from k31ctl.errors import K31Error, RefusedError
from k31ctl.report.failure import failure_text


@pytest.mark.parametrize(
    ("kind", "exit_code"),
    [
        (errors.UsageError, 2),
        (errors.ProfileError, 3),
        (errors.InputError, 3),
        (errors.RefusedError, 4),
        (errors.GateError, 4),
        (errors.NotProvenError, 5),
        (errors.EndpointError, 6),
    ],
)
def test_each_kind_of_failure_has_its_exit_code(kind: type[K31Error], exit_code: int) -> None:
    assert kind("what", where="where", remedy="remedy").exit_code == exit_code


def test_a_failure_is_three_lines() -> None:
    error = K31Error("the weights do not fit", where="kimi-k3 on 8x-h200", remedy="pass --nodes 2")
    assert failure_text(error) == (
        "error: the weights do not fit\n   at: kimi-k3 on 8x-h200\n   do: pass --nodes 2\n"
    )


@pytest.mark.parametrize(
    ("rule", "source", "expected"),
    [
        ("", "", "launch.sh"),
        ("no-fit", "", "launch.sh  (rule no-fit)"),
        ("no-fit", "release code", "launch.sh  (rule no-fit, source: release code)"),
    ],
)
def test_a_refusal_names_the_rule_behind_it(rule: str, source: str, expected: str) -> None:
    error = RefusedError("no", where="launch.sh", remedy="do", rule=rule, source=source)
    assert error.place == expected


def test_a_name_from_a_file_cannot_add_lines_or_move_the_cursor() -> None:
    error = K31Error("bad\nerror: fake\x1b[2J", where="a\r\nb", remedy="c")
    assert failure_text(error) == "error: bad error: fake?[2J\n   at: a b\n   do: c\n"
