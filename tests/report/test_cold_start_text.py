from k31ctl.report.cold_start_text import cold_start_document, cold_start_text
from k31ctl.report.durations import duration
from tests.core.starts import started


def test_times_are_written_as_people_write_them() -> None:
    shown = [duration(s) for s in (0.4392, 9.99, 95.2, 552, 6586)]
    assert shown == ["0.44 s", "10 s", "95 s", "9 min 12 s", "1 h 50 min"]


def test_the_section_keeps_to_eighty_columns_and_starts_with_the_answer() -> None:
    for found in (started(), started(nodes=2, tp=8, pp=2, storage="page-cache", warm_caches=True)):
        lines = cold_start_text(found)
        assert max(map(len, lines)) <= 80
        assert lines[0].startswith("from ")
        assert duration(found.total_s.value) in " ".join(lines[:2])


def test_the_document_has_every_part_and_parts_add_up() -> None:
    document = cold_start_document(started())
    assert sum(part["seconds"] for part in document["parts"]) == document["total_s"]
    assert sum(part["low"] for part in document["parts"]) == document["total_s_low"]
    for part in document["parts"]:
        assert {"part", "seconds", "low", "high", "basis", "source"} <= part.keys()
