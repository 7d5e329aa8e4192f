"""Files that nobody wrote by hand: every reader gives an answer or a failure in three lines."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.parsers import table

PARSERS = table()


@pytest.mark.parametrize("name", PARSERS)
def test_any_file_is_read_or_refused(name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    parser = PARSERS[name]
    folder = tmp_path_factory.mktemp("fuzz")
    usual = settings.default.max_examples
    few = max(1, usual // 10) if parser.is_slow else usual

    @settings(max_examples=few, suppress_health_check=list(HealthCheck), database=None)
    @given(st.data())
    def holds(data: st.DataObject) -> None:
        parser.read(folder, parser.files(lambda n: data.draw(st.integers(0, n - 1))))

    holds()
