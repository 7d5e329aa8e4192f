"""``k31ctl inspect`` on small checkpoints of the real architecture."""

import json
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from k31ctl.catalog.models import model_at
from k31ctl.core.tensors import TensorTemplate

DATA = Path(__file__).parent.parent / "data"
INDEX = "model.safetensors.index.json"
SHARDS = ("model-00001-of-000002.safetensors", "model-00002-of-000002.safetensors")
Run = Callable[..., subprocess.CompletedProcess[str]]
Shapes = dict[str, tuple[str, tuple[int, ...], int]]


def tiny_config() -> dict[str, Any]:
    """Kimi K3's own configuration, with four layers, two experts and narrow matrices."""
    config: dict[str, Any] = json.loads((DATA / "kimi-k3.config.json").read_text())
    text, vision = config["text_config"], config["vision_config"]
    text |= {"num_hidden_layers": 4, "hidden_size": 64, "vocab_size": 32, "intermediate_size": 64}
    text |= {"num_experts": 2, "num_experts_per_token": 1, "moe_intermediate_size": 32}
    text |= {"routed_expert_hidden_size": 32, "num_attention_heads": 2, "num_key_value_heads": 2}
    text |= {"kv_lora_rank": 16, "q_lora_rank": 16, "attn_res_block_size": 2}
    text["linear_attn_config"] |= {"full_attn_layers": [4], "kda_layers": [1, 2, 3]}
    text["linear_attn_config"] |= {"num_heads": 2, "head_dim": 16}
    vision |= {"vt_num_hidden_layers": 1, "vt_hidden_size": 16, "vt_intermediate_size": 16}
    vision |= {"qkv_hidden_size": 16, "init_pos_emb_height": 2, "init_pos_emb_width": 2}
    return config


def write_shard(path: Path, shapes: Shapes) -> None:
    header, position = {}, 0
    for name, (dtype, shape, num_bytes) in shapes.items():
        end = position + num_bytes
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [position, end]}
        position = end
    text = json.dumps(header, separators=(",", ":")).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(position))


def kind(template: TensorTemplate) -> tuple[str, tuple[int, ...], int]:
    return template.dtype, template.shape, template.tensor_bytes


class Checkpoint:
    """A sound checkpoint in two shards; a test changes ``shapes`` and writes it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "config.json").write_text(json.dumps(tiny_config()))
        templates = model_at(folder).templates
        self.shapes: Shapes = {n: kind(t) for t in templates for n in t.names()}
        self.weight_map = {name: SHARDS[i % 2] for i, name in enumerate(self.shapes)}

    def write(self) -> "Checkpoint":
        for shard in SHARDS:
            held = {n: s for n, s in self.shapes.items() if self.weight_map.get(n) == shard}
            write_shard(self.folder / shard, held)
        total = sum(num_bytes for _, _, num_bytes in self.shapes.values())
        index = {"metadata": {"total_size": total}, "weight_map": self.weight_map}
        (self.folder / INDEX).write_text(json.dumps(index))
        return self

    def tensor(self, ending: str) -> str:
        return next(name for name in self.shapes if name.endswith(ending))


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    folder = tmp_path / "tiny"
    folder.mkdir()
    return Checkpoint(folder).write()


def result_of(k31ctl: Run, checkpoint: Checkpoint, *more: str) -> tuple[int, dict[str, Any]]:
    done = k31ctl("inspect", str(checkpoint.folder), "--json", *more)
    document = json.loads(done.stdout)
    assert document["schema"] == "k31ctl/inspect/v1"
    return done.returncode, document["result"]


def test_a_whole_checkpoint_is_proven(k31ctl: Run, checkpoint: Checkpoint) -> None:
    code, result = result_of(k31ctl, checkpoint)
    assert (code, result["proven"]) == (0, True)
    assert result["num_tensors"] == len(checkpoint.shapes)
    assert result["total_bytes"] == sum(size for _, _, size in checkpoint.shapes.values())
    assert (result["missing"], result["unexpected"]) == ([], [])
    assert (result["mismatched"], result["corrupt"]) == ([], [])
    assert result["files"] == 2


def test_the_conclusion_comes_first_and_fits_80_columns(
    k31ctl: Run, checkpoint: Checkpoint
) -> None:
    del checkpoint.shapes[checkpoint.tensor("experts.1.w1.weight_packed")]
    checkpoint.write()
    done = k31ctl("inspect", str(checkpoint.folder))
    assert done.returncode == 5
    assert done.stdout.startswith("These are not the tensors of tiny: 1 missing")
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert done.stderr.splitlines()[0] == "error: the headers are not those of tiny"


def test_a_missing_tensor_is_named(k31ctl: Run, checkpoint: Checkpoint) -> None:
    name = checkpoint.tensor("experts.1.w2.weight_scale")
    del checkpoint.shapes[name], checkpoint.weight_map[name]
    checkpoint.write()
    code, result = result_of(k31ctl, checkpoint)
    assert (code, result["missing"], result["num_missing"]) == (5, [name], 1)


def test_an_unexpected_tensor_is_named(k31ctl: Run, checkpoint: Checkpoint) -> None:
    checkpoint.shapes["language_model.extra"] = ("BF16", (1,), 2)
    checkpoint.weight_map["language_model.extra"] = SHARDS[0]
    checkpoint.write()
    code, result = result_of(k31ctl, checkpoint)
    assert (code, result["unexpected"]) == (5, ["language_model.extra"])


def test_another_type_or_shape_is_a_mismatch(k31ctl: Run, checkpoint: Checkpoint) -> None:
    name = checkpoint.tensor("kv_a_layernorm.weight")
    checkpoint.shapes[name] = ("F32", (16,), 64)
    checkpoint.write()
    code, result = result_of(k31ctl, checkpoint)
    assert code == 5
    assert result["mismatched"] == [
        {"name": name, "expected": "BF16 [16]", "found": "F32 [16]"},
    ]


def test_a_truncated_shard_is_corrupt(k31ctl: Run, checkpoint: Checkpoint) -> None:
    path = checkpoint.folder / SHARDS[1]
    path.write_bytes(path.read_bytes()[:-1])
    code, result = result_of(k31ctl, checkpoint)
    assert code == 5
    assert result["corrupt"] == [
        {
            "file": SHARDS[1],
            "problem": "is 1 byte too short for the tensors in its header",
        }
    ]
    text = k31ctl("inspect", str(checkpoint.folder)).stdout
    assert text.startswith("These are not the tensors of tiny: 1 file with faults.\n")
    assert "\ncorrupt: 1 finding\n" in text


def test_a_lost_shard_is_corrupt_and_its_tensors_are_missing(
    k31ctl: Run, checkpoint: Checkpoint
) -> None:
    (checkpoint.folder / SHARDS[1]).unlink()
    code, result = result_of(k31ctl, checkpoint)
    assert code == 5
    assert result["num_missing"] == sum(f == SHARDS[1] for f in checkpoint.weight_map.values())
    assert [each["file"] for each in result["corrupt"]] == [SHARDS[1]]


def test_a_tensor_in_another_shard_than_the_index_says_is_corrupt(
    k31ctl: Run, checkpoint: Checkpoint
) -> None:
    name = next(iter(checkpoint.weight_map))
    index = {"weight_map": {**checkpoint.weight_map, name: SHARDS[1]}}
    (checkpoint.folder / INDEX).write_text(json.dumps(index))
    code, result = result_of(k31ctl, checkpoint)
    assert (code, result["num_missing"], result["num_corrupt"]) == (5, 0, 1)
    assert "puts elsewhere" in result["corrupt"][0]["problem"]


def test_a_tensor_that_only_the_index_has_is_corrupt(k31ctl: Run, checkpoint: Checkpoint) -> None:
    index = {"weight_map": {**checkpoint.weight_map, "ghost": SHARDS[0]}}
    (checkpoint.folder / INDEX).write_text(json.dumps(index))
    code, result = result_of(k31ctl, checkpoint)
    assert code == 5
    assert "lacks 1 tensor of the index, the first: ghost" in result["corrupt"][0]["problem"]


def test_a_tensor_in_two_shards_is_corrupt(k31ctl: Run, checkpoint: Checkpoint) -> None:
    (checkpoint.folder / INDEX).unlink()
    write_shard(
        checkpoint.folder / "again.safetensors", dict([next(iter(checkpoint.shapes.items()))])
    )
    code, result = result_of(k31ctl, checkpoint)
    assert code == 5
    assert "in more than one file" in result["corrupt"][0]["problem"]


def test_without_an_index_every_file_is_read(k31ctl: Run, checkpoint: Checkpoint) -> None:
    (checkpoint.folder / INDEX).unlink()
    assert result_of(k31ctl, checkpoint)[0] == 0


def test_a_model_may_be_named_instead_of_the_config(k31ctl: Run, checkpoint: Checkpoint) -> None:
    code, result = result_of(k31ctl, checkpoint, "--model", "kimi-k3")
    assert (code, result["model"]["id"]) == (5, "kimi-k3")
    assert len(result["missing"]) == 1000 < result["num_missing"]


def test_a_gate_that_fails_is_exit_4(k31ctl: Run, checkpoint: Checkpoint) -> None:
    folder = str(checkpoint.folder)
    assert k31ctl("inspect", folder, "--gate", "num_missing==0").returncode == 0
    assert k31ctl("inspect", folder, "--gate", "files<=1").returncode == 4


def test_a_hub_repository_without_its_mark_is_refused_with_the_way_out(k31ctl: Run) -> None:
    done = k31ctl("inspect", "moonshotai/Kimi-K3")
    assert (done.returncode, done.stdout) == (2, "")
    assert "hub:moonshotai/Kimi-K3 for a repository on a hub" in done.stderr


@pytest.mark.parametrize("name", ["no-such-folder", "./no/such/folder"])
def test_a_folder_that_is_not_there_is_exit_3(k31ctl: Run, name: str) -> None:
    assert k31ctl("inspect", name).returncode == 3


def test_a_folder_without_safetensors_is_exit_3(k31ctl: Run, tmp_path: Path) -> None:
    done = k31ctl("inspect", str(tmp_path))
    assert done.returncode == 3
    assert done.stderr.startswith("error: no safetensors file here")


def test_a_folder_without_a_config_is_exit_3(k31ctl: Run, checkpoint: Checkpoint) -> None:
    (checkpoint.folder / "config.json").unlink()
    assert k31ctl("inspect", str(checkpoint.folder)).returncode == 3


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"weight_map": []}',
        '{"weight_map": {"a": 1}}',
        '{"weight_map": {"a": ["x"]}}',
        '{"weight_map": {"a": "../../etc/x.safetensors"}}',
        '{"weight_map": {"a": "/etc/passwd"}}',
        "[" * 100_000,
    ],
)
def test_an_index_that_is_not_one_is_exit_3(k31ctl: Run, checkpoint: Checkpoint, text: str) -> None:
    (checkpoint.folder / INDEX).write_text(text)
    done = k31ctl("inspect", str(checkpoint.folder))
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith("error: the index ")


def test_control_codes_in_a_name_do_not_reach_the_terminal(
    k31ctl: Run, checkpoint: Checkpoint
) -> None:
    checkpoint.shapes["\x1b[31mred"] = ("BF16", (1,), 2)
    checkpoint.weight_map["\x1b[31mred"] = SHARDS[0]
    checkpoint.write()
    done = k31ctl("inspect", str(checkpoint.folder))
    assert done.returncode == 5
    assert "\x1b" not in done.stdout


def test_half_a_surrogate_pair_in_a_name_is_corrupt_and_never_breaks_the_answer(
    k31ctl: Run, checkpoint: Checkpoint
) -> None:
    checkpoint.shapes["\ud800.weight"] = ("BF16", (1,), 2)
    checkpoint.weight_map["\ud800.weight"] = SHARDS[0]
    checkpoint.write()
    code, result = result_of(k31ctl, checkpoint)
    assert code == 5
    assert "half a surrogate pair" in result["corrupt"][0]["problem"]
    done = k31ctl("inspect", str(checkpoint.folder))
    assert (done.returncode, done.stderr.count("\n")) == (5, 3)
    assert "half a surrogate pair" in " ".join(done.stdout.split())


def test_a_wrong_total_size_is_told_and_fails_nothing(k31ctl: Run, checkpoint: Checkpoint) -> None:
    total = sum(size for _, _, size in checkpoint.shapes.values())
    index = {"metadata": {"total_size": total + 7}, "weight_map": checkpoint.weight_map}
    (checkpoint.folder / INDEX).write_text(json.dumps(index))
    done = k31ctl("inspect", str(checkpoint.folder), "--json")
    assert done.returncode == 0
    assert json.loads(done.stdout)["warnings"] == [
        f"total_size in the index is wrong by +7 bytes: it states {total + 7:,}, "
        f"the tensors take {total:,}"
    ]


def test_many_strangers_are_counted_and_listed_to_a_limit(
    k31ctl: Run, checkpoint: Checkpoint
) -> None:
    strangers = [f"stranger{i}" for i in range(2_500)]
    checkpoint.shapes |= dict.fromkeys(strangers, ("U8", (0,), 0))
    checkpoint.weight_map |= dict.fromkeys(strangers, SHARDS[0])
    checkpoint.write()
    code, result = result_of(k31ctl, checkpoint)
    assert (code, result["num_unexpected"]) == (5, 2_500)
    assert (len(result["unexpected"]), len(result["unexpected_patterns"])) == (1_000, 1_000)
    text = k31ctl("inspect", str(checkpoint.folder)).stdout
    assert "  and more than --json lists; --json has 1,000\n" in text
