import gzip
import json
from pathlib import Path

import pytest

from k31ctl.catalog.trace import MAX_BYTES, Trace, read_trace
from k31ctl.errors import InputError


def trace(folder: Path, content: str | bytes) -> Trace:
    place = folder / "trace"
    place.write_bytes(content.encode() if isinstance(content, str) else content)
    return read_trace(place)


def rows(found: Trace) -> list[tuple[float, int, int, int]]:
    return [
        (a.arrival_s, a.size.prompt_tokens, a.size.output_tokens, a.size.cached_tokens)
        for a in found.load.arrivals
    ]


@pytest.mark.parametrize(
    "content",
    [
        "arrival,prompt,output,cached\n0,100,10,40\n1.5,200,20,\n",
        "\ufeffcached , arrival,output,prompt,model\r\n40,0,10,100,a\r\n\r\n0,1.5,20,200,b\r\n",
        '{"arrival": 0, "prompt": 100, "output": 10, "cached": 40}\n'
        '{"arrival": 1.5, "prompt": 200, "output": 20}\n',
    ],
    ids=["csv", "windows csv with other columns", "json lines"],
)
def test_rows_of_arrival_prompt_output_and_cached(tmp_path: Path, content: str) -> None:
    found = trace(tmp_path, content)
    assert rows(found) == [(0.0, 100, 10, 40), (1.5, 200, 20, 0)]
    assert (found.kind, found.notes) == ("k31ctl", ())


def test_a_mooncake_trace_counts_milliseconds(tmp_path: Path) -> None:
    row = {"timestamp": 27482, "input_length": 6955, "output_length": 52, "hash_ids": [46, 47]}
    first = row | {"timestamp": 0}
    found = trace(tmp_path, f"{json.dumps(first)}\n{json.dumps(row)}\n")
    assert rows(found) == [(0.0, 6955, 52, 0), (27.482, 6955, 52, 0)]
    assert found.kind == "Mooncake"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("2023-11-16 18:17:03.9799600", "2023-11-16 18:17:04.2299600"),
        ("2024-05-10 00:00:00.009930+00:00", "2024-05-10 00:00:00.259930+00:00"),
        ("2024-05-10 00:00:00+00:00", "2024-05-10 00:00:00.25+00:00"),
    ],
)
def test_an_azure_trace_has_dates(tmp_path: Path, first: str, second: str) -> None:
    found = trace(
        tmp_path, f"TIMESTAMP,ContextTokens,GeneratedTokens\n{first},4808,10\n{second},3180,8\n"
    )
    assert [(round(t, 6), p, o) for t, p, o, _ in rows(found)] == [(0, 4808, 10), (0.25, 3180, 8)]
    assert (found.kind, len(found.notes)) == ("Azure", 1)


def test_rows_out_of_order_are_sorted_and_the_answer_says_so(tmp_path: Path) -> None:
    found = trace(tmp_path, "arrival,prompt,output\n9,1,1\n5,2,2\n5,3,3\n")
    assert [(t, p) for t, p, _, _ in rows(found)] == [(0.0, 2), (0.0, 3), (4.0, 1)]
    assert "sorted" in found.notes[0]
    assert "shifted" in found.notes[1]


def test_rows_that_ask_for_nothing_are_left_out_and_counted(tmp_path: Path) -> None:
    found = trace(tmp_path, "arrival,prompt,output\n0,1,0\n0,0,1\n0,7,7\n")
    assert rows(found) == [(0.0, 7, 7, 0)]
    assert found.notes == ("2 rows without a prompt or an output were left out",)


def test_a_prompt_that_is_cached_whole_still_computes_its_last_token(tmp_path: Path) -> None:
    assert rows(trace(tmp_path, "arrival,prompt,output,cached\n0,8,1,8\n")) == [(0.0, 8, 1, 7)]


HEAD = "arrival,prompt,output,cached\n"


@pytest.mark.parametrize(
    ("content", "what"),
    [
        ("", "empty"),
        ("\n \n", "empty"),
        (HEAD, "no request"),
        (HEAD + "0,0,0,0\n", "no request"),
        ("0,100,10\n", "line 1: no column arrival, prompt, output"),
        ("arrival,prompt\n0,1\n", "line 1: no column output"),
        ("timestamp,input_length\n0,1\n", "line 1: no column output_length"),
        ("arrival,prompt,output,output\n", "line 1: a column is there twice"),
        (HEAD + "0,1,1,0\n0,1,1\n", "line 3: 3 values for 4 columns"),
        (HEAD + "-1,1,1,0\n", "line 2: arrival is '-1', not a time of 0 or later"),
        (HEAD + "nan,1,1,0\n", "line 2: arrival is 'nan'"),
        (HEAD + "1e300,1,1,0\n", "line 2: arrival is '1e300'"),
        (HEAD + "noon,1,1,0\n", "line 2: arrival is 'noon', not a time"),
        (HEAD + "0,-1,1,0\n", "line 2: prompt is '-1', not a whole number"),
        (HEAD + "0,1.5,1,0\n", "line 2: prompt is '1.5', not a whole number"),
        (HEAD + "0,1,NaN,0\n", "line 2: output is 'NaN', not a whole number"),
        (HEAD + "0,1,1e18,0\n", "line 2: output is '1e18', not a whole number"),
        (HEAD + "0,1,inf,0\n", "line 2: output is 'inf', not a whole number"),
        (HEAD + "0,1,,0\n", "line 2: output is '', not a number of tokens"),
        (HEAD + "0,1,1,2\n", "line 2: cached is 2, more than prompt, 1"),
        (HEAD + '0,"1,1,0\n', "line 2: not CSV"),
        (HEAD + "0,1,1,0\n0,\xff,1,0\n", "line 3: prompt is"),
        (HEAD.encode() + b"0,1,1,0\n\xff\xfe\n", "line 3: not UTF-8 text"),
        (HEAD.encode() + b"0,1,1,\0\n", "line 2: binary data"),
        (gzip.compress(b"arrival", mtime=0), "not UTF-8 text"),
        ('{"arrival": 0, "prompt": 1, "output": 1}\n{"arrival"\n', "line 2: not JSON"),
        ('{"arrival": 0, "prompt": 1, "output": 1}\n[]\n', "line 2: not a JSON object"),
        ('{"arrival": 0, "prompt": 1, "output": 1}\n{"arrival": 0}\n', "line 2: no prompt"),
        ('{"arrival": NaN, "prompt": 1, "output": 1}', "line 1: arrival is nan"),
        ('{"arrival": true, "prompt": 1, "output": 1}', "line 1: arrival is True, not a time"),
        ('{"arrival": 0, "prompt": null, "output": 1}', "line 1: prompt is None"),
        ('{"arrival": 0, "prompt": 1' + "0" * 400 + ', "output": 1}', "line 1: prompt is 1000"),
        ('{"arrival": ' + "[" * 200_000, "line 1: not JSON"),
        ('[{"arrival": 0}]', "line 1: not a JSON object"),
        ("x" * (2**20 + 1), "line 1: longer than"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\nyesterday,1,1\n", "line 2: TIMESTAMP is"),
    ],
)
def test_what_is_no_trace_is_refused_with_its_line(
    tmp_path: Path, content: str | bytes, what: str
) -> None:
    with pytest.raises(InputError) as caught:
        trace(tmp_path, content)
    assert what in caught.value.what
    assert caught.value.where == str(tmp_path / "trace")
    assert len(caught.value.what) < 200


def test_a_huge_file_is_refused_before_it_is_read_whole(tmp_path: Path) -> None:
    place = tmp_path / "trace"
    with place.open("wb") as stream:
        stream.truncate(MAX_BYTES + 1)
    with pytest.raises(InputError, match="larger than"):
        read_trace(place)


@pytest.mark.parametrize(
    ("place", "what"),
    [
        ("missing.csv", "no such file"),
        ("/dev/zero", "not a regular file"),
        ("/", "not a regular file"),
        ("x" * 5_000, "cannot be read"),
        ("nul\0", "not a path|no such file"),
    ],
)
def test_what_is_no_file_is_refused(place: str, what: str) -> None:
    with pytest.raises(InputError, match=what):
        read_trace(Path(place))
