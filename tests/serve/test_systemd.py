"""Units as systemd reads them: its own verification, and its rules of quoting read back."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from k31ctl.errors import UsageError
from k31ctl.serve.asked import Place, Target
from k31ctl.serve.files import LaunchFile
from k31ctl.serve.launch_files import launch_files
from k31ctl.serve.rollout import NodeValue, Rollout
from tests.serve.launches import launch

HOSTS = Place(head=None, hosts=("10.0.0.1", "10.0.0.2"), interface="eth7")
NAMES = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)
ESCAPE = re.compile(r"\\(x[0-9a-f]{2}|.)")
WORD = re.compile(r'"((?:[^"\\]|\\.)*)"|([^\s"\\]+)')
LETTERS = {"n": "\n", "t": "\t", "r": "\r"}
HOSTILE = "/data/k 3 'a' \"b\" $HOME ${X} %n %% \\ \\n ; | \t\n\x07 кими"


def units(made: Rollout) -> list[LaunchFile]:
    return [f for f in launch_files(made, Target.SYSTEMD) if f.path.endswith(".service")]


def words_in(file: LaunchFile) -> list[str]:
    """The command of a unit by the rules of systemd.service(5) and systemd.syntax(7)."""
    (line,) = [line for line in file.text.split("\n") if line.startswith("ExecStart=")]
    rest = line.removeprefix("ExecStart=")
    words = [quoted or plain for quoted, plain in WORD.findall(rest)]
    assert WORD.sub("", rest).strip() == ""
    return [
        ESCAPE.sub(lambda m: LETTERS.get(m[1]) or by_number(m[1]), word)
        .replace("%%", "%")
        .replace("$$", "$")
        for word in words
    ]


def by_number(escape: str) -> str:
    return escape if len(escape) == 1 else chr(int(escape[1:], 16))


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
@pytest.mark.parametrize("folder", ["/models/k3", HOSTILE])
def test_systemd_finds_nothing_wrong_with_a_unit(folder: str, tmp_path: Path) -> None:
    made = launch(on="8x-b200", nodes=2, target=Target.SYSTEMD, place=HOSTS, folder=folder)
    for file in units(made):
        path = tmp_path / file.path
        path.write_text(file.text, encoding="utf-8")
        done = subprocess.run(
            ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", str(path)],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert [line for line in done.stderr.splitlines() if file.path in line] == []
        assert done.returncode == 0


def test_every_unit_has_the_words_of_its_rank() -> None:
    made = launch(on="8x-b200", nodes=2, target=Target.SYSTEMD, place=HOSTS)
    server = made.servers[0]
    for rank, file in enumerate(units(made)):
        known = {"rank": str(rank), "head": "10.0.0.1", "interface": "eth7"}
        expected = [
            w.at(known[w.where]) if isinstance(w, NodeValue) else w
            for w in server.words(made.model, follower=rank > 0)
        ]
        assert words_in(file)[-len(expected) :] == expected
        assert f'Environment="VLLM_HOST_IP={HOSTS.hosts[rank]}"' in file.text


@given(name=NAMES)
@settings(max_examples=30, deadline=None)
def test_a_folder_of_any_name_is_one_word_of_one_line(name: str) -> None:
    folder = f"/{name}"
    made = launch(target=Target.SYSTEMD, folder=folder, served_name=f"m{name}")
    (file,) = units(made)
    words = words_in(file)
    assert folder in words
    assert f"m{name}" in words
    assert sum(line.startswith("ExecStart=") for line in file.text.split("\n")) == 1


def test_a_unit_of_several_nodes_has_to_know_them() -> None:
    made = launch(on="8x-b200", nodes=2, target=Target.SYSTEMD)
    with pytest.raises(UsageError, match="has to say the"):
        launch_files(made, Target.SYSTEMD)
    with pytest.raises(UsageError, match="means another folder"):
        launch(target=Target.SYSTEMD, folder="weights")
