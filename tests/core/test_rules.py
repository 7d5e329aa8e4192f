"""Every rule finds its failing case and lets its passing one go; every report is accounted for."""

import re
from collections.abc import Mapping

import pytest

from k31ctl.core.rules import Severity, check
from k31ctl.core.rules.check import RULES
from k31ctl.core.rules.failures import ELSEWHERE
from k31ctl.core.rules.kernel_rules import SGLANG_ATTENTION, SGLANG_EXPERTS, VLLM_EXPERTS
from k31ctl.core.rules.read_rules import READINGS
from tests.core.catalogs import CATALOGS
from tests.core.rule_cases import CASES, Case
from tests.core.rule_contexts import context

IDS = sorted({rule.id for rule in RULES} | {reading.id for reading in READINGS.values()})


def found(case: Case) -> set[str]:
    command, more = case
    return {finding.id for finding in check(context(command, **more))}


@pytest.mark.parametrize("rule_id", IDS)
def test_a_rule_finds_its_failing_case_and_not_its_passing_one(rule_id: str) -> None:
    failing, passing = CASES[rule_id]
    assert rule_id in found(failing)
    assert rule_id not in found(passing)


@pytest.mark.parametrize("rule_id", [rule.id for rule in RULES])
def test_a_finding_names_every_flag_and_variable_that_it_is_about(rule_id: str) -> None:
    command, more = CASES[rule_id][0]
    asked = context(command, **more)
    for finding in (each for each in check(asked) if each.id == rule_id):
        told = f"{finding.message} {finding.remedy}"
        settings = [s for s in asked.launch.settings if {*s.positions} & {*finding.positions}]
        unnamed = [s.flag for s in settings if s.flag not in told and s.spelling not in told]
        assert unnamed == []
        assert finding.variable in told


def test_no_case_is_of_a_rule_that_is_gone() -> None:
    assert set(CASES) == set(IDS)


def test_the_ids_of_rules_are_their_own_and_kebab_case() -> None:
    ids = [rule.id for rule in RULES] + [reading.id for reading in READINGS.values()]
    assert len(ids) == len(set(ids))
    assert all(re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)+", rule_id) for rule_id in ids)


def test_each_of_the_fifty_five_reports_has_a_rule_or_a_reason() -> None:
    covered = {number for rule in RULES for number in rule.failures}
    covered |= {number for reading in READINGS.values() for number in reading.failures}
    assert covered.isdisjoint(ELSEWHERE)
    assert covered | set(ELSEWHERE) == set(range(1, 56))


def test_every_flag_that_a_change_adds_is_one_of_its_engine() -> None:
    for command, more in (failing for failing, _ in CASES.values()):
        asked = context(command, **more)
        names = {name for flag in CATALOGS[asked.name].flags for name in flag.spellings}
        for finding in check(asked):
            added = finding.change.add if finding.change is not None else ()
            assert {word for word in added if word.startswith("--")} <= names


@pytest.mark.parametrize(
    ("engine", "flag", "table"),
    [
        ("sglang", "--attention-backend", SGLANG_ATTENTION),
        ("sglang", "--moe-runner-backend", SGLANG_EXPERTS),
        ("vllm", "--moe-backend", VLLM_EXPERTS),
    ],
)
def test_the_kernels_of_the_tables_are_choices_of_the_release(
    engine: str, flag: str, table: Mapping[str, tuple[str, ...]]
) -> None:
    (found,) = (each for each in CATALOGS[engine].flags if each.name == flag)
    assert set(table) <= set(found.choices or ())


def test_findings_come_worst_first() -> None:
    command, more = CASES["vllm-dspark-pp"][0]
    order = [list(Severity).index(f.severity) for f in check(context(command, **more))]
    assert order == sorted(order)
