"""A chart of plain characters."""

from k31ctl.report.scatter import COLUMNS, ROWS, scatter


def test_the_ends_of_both_axes_are_the_ends_of_the_points() -> None:
    lines = scatter([(1.0, 10.0, "a"), (100.0, 1000.0, "b")], across="x", up="y")
    top, bottom = lines[1], lines[ROWS]
    assert top == f"     1,000 |{' ' * (COLUMNS - 1)}b"
    assert bottom == "      10.0 |a"
    assert lines[-1].split() == ["1.00", "x", "100"]


def test_the_middle_of_a_ratio_is_the_middle_of_an_axis() -> None:
    lines = scatter([(1.0, 1.0, "."), (10.0, 10.0, "m"), (100.0, 100.0, ".")], across="", up="")
    marked = [i for i, line in enumerate(lines) if "m" in line]
    assert marked == [1 + ROWS // 2]


def test_one_point_alone_is_drawn() -> None:
    assert sum("a" in line for line in scatter([(3.0, 3.0, "a")], across="", up="")) == 1
