"""Tiny checkpoints as users write them, read back by the other commands."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from tests.cli.test_schemas import schema

Run = Callable[..., subprocess.CompletedProcess[str]]
MODELS = ("kimi-k3.1-pro", "kimi-k3", "kimi-linear")


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("model", MODELS)
def test_a_tiny_checkpoint_is_what_inspect_and_verify_expect(
    k31ctl: Run, tmp_path: Path, model: str
) -> None:
    folder = tmp_path / model
    made = json.loads(k31ctl("tiny", str(folder), "--model", model, "--json").stdout)
    Draft202012Validator(schema("tiny")).validate(made)
    inspected = k31ctl("inspect", str(folder), "--json", "--gate", "proven==true")
    verified = k31ctl("verify", "--deep", str(folder), "--json", "--gate", "num_findings==0")
    assert (inspected.returncode, verified.returncode) == (0, 0)
    for name in ("num_tensors", "total_bytes", "total_params"):
        assert json.loads(inspected.stdout)["result"][name] == made["result"][name]


def test_the_same_seed_gives_the_same_bytes_and_another_gives_others(
    k31ctl: Run, tmp_path: Path
) -> None:
    for name, seed in (("a", "1"), ("b", "1"), ("c", "2")):
        made = k31ctl("tiny", str(tmp_path / name), "--seed", seed, PYTHONHASHSEED=str(ord(name)))
        assert made.returncode == 0
    a, b, c = (contents(tmp_path / name) for name in "abc")
    assert a == b
    assert {name for name in a if a[name] != c[name]} == {
        "model-00001-of-000002.safetensors",
        "model-00002-of-000002.safetensors",
    }


def test_a_tiny_checkpoint_has_every_kind_of_layer(k31ctl: Run, tmp_path: Path) -> None:
    made = json.loads(k31ctl("tiny", str(tmp_path / "t"), "--json").stdout)["result"]
    assert made["architecture"] == "KimiK31ForConditionalGeneration"
    assert (made["num_linear_layers"], made["num_full_layers"], made["index_topk"]) == (4, 2, 16)
    assert (made["num_dense_layers"], made["num_moe_layers"], made["expert_format"]) == (
        1,
        5,
        "mxfp4",
    )
    assert (made["num_snapshots"], made["num_vision_layers"]) == (2, 2)
    assert 1e6 < made["total_bytes"] < 5e6


def test_the_text_says_where_what_and_what_next(k31ctl: Run, tmp_path: Path) -> None:
    done = k31ctl("tiny", str(tmp_path / "t"))
    assert done.returncode == 0
    assert done.stdout.startswith("A tiny kimi-k3.1-pro with random weights: 424 tensors, 2.9 MiB")
    assert "sparse attention over 16 tokens" in done.stdout
    assert done.stdout.endswith(f"next: k31ctl verify --deep {tmp_path / 't'}\n")


def test_a_folder_that_holds_something_is_left_alone(k31ctl: Run, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    done = k31ctl("tiny", str(tmp_path))
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith("error: there is something here already\n")
    assert contents(tmp_path) == {"mine.txt": b"mine"}


def test_an_empty_folder_is_filled_and_stays_the_same_folder(k31ctl: Run, tmp_path: Path) -> None:
    before = tmp_path.stat().st_ino
    assert k31ctl("tiny", str(tmp_path)).returncode == 0
    assert tmp_path.stat().st_ino == before
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "config.json",
        "generation_config.json",
        "model-00001-of-000002.safetensors",
        "model-00002-of-000002.safetensors",
        "model.safetensors.index.json",
        "preprocessor_config.json",
        "tiktoken.model",
        "tokenizer_config.json",
    ]


def test_a_place_that_cannot_be_written_leaves_nothing(k31ctl: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = k31ctl("tiny", str(tmp_path / "file" / "inside"))
    assert (done.returncode, len(done.stderr.splitlines())) == (3, 3)
    assert contents(tmp_path) == {"file": b""}


def test_an_unknown_model_is_refused_with_the_known_ones(k31ctl: Run, tmp_path: Path) -> None:
    done = k31ctl("tiny", str(tmp_path / "t"), "--model", "gpt-2")
    assert done.returncode == 2
    assert "choose one of kimi-k3.1-pro, kimi-k3, kimi-linear" in done.stderr


def test_writing_a_tiny_checkpoint_needs_no_torch(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['torch'] = sys.modules['numpy'] = None; "
        f"from k31ctl.cli.main import main; main(['tiny', {str(tmp_path / 't')!r}])"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, timeout=60)
    assert done.returncode == 0


@pytest.mark.parametrize("model", MODELS)
def test_every_token_of_the_tiny_tokenizer_is_reached(
    k31ctl: Run, tmp_path: Path, model: str
) -> None:
    load = pytest.importorskip("tiktoken.load", reason="tiktoken is not installed")
    tiktoken = pytest.importorskip("tiktoken")
    assert k31ctl("tiny", str(tmp_path / "t"), "--model", model).returncode == 0
    ranks = load.load_tiktoken_bpe(str(tmp_path / "t" / "tiktoken.model"))
    config = json.loads((tmp_path / "t" / "config.json").read_text())
    named = json.loads((tmp_path / "t" / "tokenizer_config.json").read_text())
    special = {
        str(entry["content"]): int(number)
        for number, entry in named["added_tokens_decoder"].items()
    }
    encoding = tiktoken.Encoding(
        "tiny", pat_str=K3_PATTERN, mergeable_ranks=ranks, special_tokens=special
    )
    assert sorted(ranks.values()) == list(range(len(ranks)))
    longer = {token.decode(): [rank] for token, rank in ranks.items() if len(token) > 1}
    assert {text: encoding.encode_ordinary(text) for text in longer} == longer
    assert len(ranks) == 256 + len(longer)
    assert special["<|end_of_msg|>"] == config["eos_token_id"]
    assert max(special.values()) < config.get("text_config", config)["vocab_size"]


# The splitter of Kimi K3's tokenizer, as its tokenization file has it.
K3_PATTERN = "|".join(
    (
        r"[\p{Han}]+",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*"
        r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+"
        r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    )
)
