"""The tokenizer against the release's rules; its vocabulary here is a small one."""

import base64
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from k31ctl.core.chat_format.output_parser import Marker
from k31ctl.core.chat_format.segments import Segment
from k31ctl.engine.tokenizer import TextStream, Tokenizer, load_tokenizer
from k31ctl.errors import InputError
from tests.engine.small_tokenizer import SmallTokenizer, write_small_tokenizer


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("tokenizer")
    write_small_tokenizer(made)
    return made


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> Tokenizer:
    return load_tokenizer(folder)


def read(tokenizer: Tokenizer, ids: list[int]) -> str:
    stream = TextStream(tokenizer)
    pieces = [piece for token in ids for piece in stream.feed(token)] + list(stream.finish())
    return "".join(piece for piece in pieces if isinstance(piece, str))


def test_the_small_tokenizer_is_the_same_each_time(tmp_path: Path, folder: Path) -> None:
    ids = write_small_tokenizer(tmp_path)
    assert ids == SmallTokenizer(
        bos_token_id=320,
        eos_token_id=322,
        pad_token_id=575,
        media_placeholder_token_id=341,
        vocab_size=576,
    )
    for path in folder.iterdir():
        assert path.read_bytes() == (tmp_path / path.name).read_bytes()


def test_every_token_of_the_small_vocabulary_can_be_reached(tokenizer: Tokenizer) -> None:
    merged = [tokenizer.bytes_of(token).decode() for token in range(256, 320)]
    assert [tokenizer.encode_text(text) for text in merged] == [[t] for t in range(256, 320)]


def test_markers_in_text_are_letters(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode_prompt([Segment("<|close|>", False)])
    assert len(ids) > 1
    assert not any(tokenizer.is_special(token) for token in ids)
    assert tokenizer.encode_prompt([Segment("<|close|>", True)]) == [324]


def test_pieces_are_encoded_on_their_own(tokenizer: Tokenizer) -> None:
    apart = tokenizer.encode_prompt([Segment("t", False), Segment("he", False)])
    assert apart == tokenizer.encode_text("t") + tokenizer.encode_text("he")
    assert apart != tokenizer.encode_text("the")


def test_an_image_takes_as_many_pads_as_it_has_tokens(tokenizer: Tokenizer) -> None:
    block = Segment("<|media_begin|>image 1x1<|media_content|><|media_pad|><|media_end|>", True)
    ids = tokenizer.encode_prompt([block, block], image_tokens=[3, 5])
    assert ids.count(341) == 8


@given(text=st.text())
def test_text_comes_back(tokenizer: Tokenizer, text: str) -> None:
    assert read(tokenizer, tokenizer.encode_text(text)) == text


@given(ids=st.lists(st.integers(0, 575)))
def test_any_ids_can_be_read(tokenizer: Tokenizer, ids: list[int]) -> None:
    expected = b"".join(b"" if tokenizer.is_special(t) else tokenizer.bytes_of(t) for t in ids)
    found = read(tokenizer, ids)
    if not any(tokenizer.is_special(t) for t in ids):
        assert found == expected.decode(errors="replace")


def test_a_character_is_never_split(tokenizer: Tokenizer) -> None:
    stream = TextStream(tokenizer)
    pieces = [list(stream.feed(byte)) for byte in "é€".encode()]
    assert pieces == [[], ["é"], [], [], ["€"]]


def test_a_marker_ends_an_unfinished_character(tokenizer: Tokenizer) -> None:
    stream = TextStream(tokenizer)
    assert [*stream.feed(0xE2), *stream.feed(324)] == ["\ufffd", Marker.CLOSE]


def test_an_unpaired_surrogate_is_replaced(tokenizer: Tokenizer) -> None:
    assert read(tokenizer, tokenizer.encode_text("a\ud800b")) == "a\ufffdb"


def release_s_pieces(text: str) -> Iterator[str]:
    """One character after another, as tokenization_kimi describes its limits."""
    for begin in range(0, len(text), 400_000):
        piece, length = "", 0
        for character in text[begin : begin + 400_000]:
            same = bool(piece) and piece[-1].isspace() == character.isspace()
            length = length + 1 if same else 1
            if length > 25_000:
                yield piece
                piece, length = "", 1
            piece += character
        yield piece


@pytest.mark.parametrize(
    "text",
    [" " * 60_001, "a" * 25_001 + " b", (" " * 24_999 + "x") * 40, "ab " * 133_334 + "c" * 50_000],
)
def test_long_runs_are_cut_where_the_release_cuts_them(tokenizer: Tokenizer, text: str) -> None:
    expected = [i for piece in release_s_pieces(text) for i in tokenizer.encode_text(piece)]
    assert tokenizer.encode_text(text) == expected


@pytest.mark.parametrize(
    "pieces",
    [
        ["XMLHttp", "Request"],
        ["foo", "BAR"],
        ["123", "456", "7"],
        ["中文", "abc"],
        ["don't"],
        ["ü", "\n"],
    ],
)
def test_the_pattern_splits_as_the_release_s(
    tmp_path: Path, folder: Path, pieces: list[str]
) -> None:
    """Each piece is a token here, and so is the whole, which the pattern must keep apart."""
    text = "".join(pieces)
    tokens = [bytes([byte]) for byte in range(256)]
    for piece in (piece.encode() for piece in pieces):
        tokens += [piece[:n] for n in range(2, len(piece) + 1) if piece[:n] not in tokens]
    tokens += [text.encode()[:n] for n in range(2, len(text.encode()) + 1)]
    tokens = list(dict.fromkeys(tokens))
    lines = [base64.b64encode(token) + b" %d" % rank for rank, token in enumerate(tokens)]
    (tmp_path / "tiktoken.model").write_bytes(b"\n".join(lines))
    added = json.loads((folder / "tokenizer_config.json").read_text())["added_tokens_decoder"]
    moved = {str(int(key) - 320 + len(tokens)): entry for key, entry in added.items()}
    config = json.dumps({"added_tokens_decoder": moved})
    (tmp_path / "tokenizer_config.json").write_text(config)
    made = load_tokenizer(tmp_path)
    assert [made.bytes_of(i).decode() for i in made.encode_text(text)] == pieces


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda text: text.replace(b"AA== 0\n", b""), "ranks are not 0"),
        (lambda text: text.replace(b"AA== 0\n", b"AAA= 0\n"), "no token for byte 0"),
        (lambda text: text + b"?? 320\n", "line 321"),
        (lambda text: text + b"\xff\n", "line 321"),
    ],
)
def test_a_damaged_vocabulary_is_refused(tmp_path: Path, change: "object", problem: str) -> None:
    write_small_tokenizer(tmp_path)
    path = tmp_path / "tiktoken.model"
    path.write_bytes(change(path.read_bytes()))  # type: ignore[operator]
    with pytest.raises(InputError, match=problem):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize(("num_lost", "num_left"), [(1, 319), (7, 313), (64, 256)])
def test_a_vocabulary_that_lost_its_end_is_refused_where_its_size_is_known(
    tmp_path: Path, num_lost: int, num_left: int
) -> None:
    ids = write_small_tokenizer(tmp_path)
    path = tmp_path / "tiktoken.model"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-num_lost]))
    with pytest.raises(InputError, match=f"has {num_left} tokens instead of 320"):
        load_tokenizer(tmp_path, num_ids=ids.vocab_size)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"323": None}, "<|open|>"),
        ({"576": {"content": "<|im_end|>"}}, "outside 320 to 575"),
        ({"330": {"content": "<|sep|>"}}, "two special tokens"),
    ],
)
def test_special_tokens_that_cannot_be_are_refused(
    tmp_path: Path, change: dict[str, object], problem: str
) -> None:
    write_small_tokenizer(tmp_path)
    path = tmp_path / "tokenizer_config.json"
    config = json.loads(path.read_text())
    added = {**config["added_tokens_decoder"], **change}
    config["added_tokens_decoder"] = {key: entry for key, entry in added.items() if entry}
    path.write_text(json.dumps(config))
    with pytest.raises(InputError) as refused:
        load_tokenizer(tmp_path)
    assert problem in refused.value.what


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError) as refused:
        load_tokenizer(tmp_path)
    assert refused.value.where.endswith("tiktoken.model")


@pytest.mark.parametrize("module", ["torch", "tiktoken", "starlette", "PIL"])
def test_the_chat_format_needs_nothing_of_the_engine(module: str) -> None:
    names = "prompt, output_parser, answer, stop_strings"
    leave = f"import sys; sys.exit({module!r} in sys.modules)"
    code = f"from k31ctl.core.chat_format import {names}\n{leave}"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0
