"""Files that a launch file runs or takes variables from: those given with it, those beside it."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

from k31ctl.errors import InputError
from k31ctl.serve.read.found import SourceWord
from k31ctl.serve.read.shell_text import TooDeepError
from k31ctl.serve.read.source import Source, read_source

Look = Callable[[str], Source | None]
_MOST_LOOKS: Final = 200
_SHELLS: Final = ("bash", "sh", "dash", "zsh", "source", ".", "sbatch")
_WRAPPERS: Final = frozenset(
    {
        *_SHELLS,
        "command",
        "dumb-init",
        "env",
        "exec",
        "mpirun",
        "nice",
        "nohup",
        "numactl",
        "pdsh",
        "setsid",
        "srun",
        "ssh",
        "stdbuf",
        "sudo",
        "taskset",
        "time",
        "timeout",
        "tini",
    }
)
_ENDINGS: Final = (".sh", ".bash", ".sbatch", ".slurm")


class Neighbours:
    """Files by the last part of their name, each read once; ``used`` are those that were found."""

    def __init__(self, given: Iterable[Source]) -> None:
        self.used: set[str] = set()
        self._given = {Path(source.name).name: source for source in given}
        self._read: dict[Path, Source | None] = {}
        self._num_looks = 0

    def begin(self) -> None:
        """Count anew what one file runs."""
        self._num_looks = 0

    def of(self, source: Source) -> Look:
        """Return what finds the files that this one names, wherever it says that they are."""
        folder = Path(source.name).parent

        def look(written: str) -> Source | None:
            self._num_looks += 1
            if self._num_looks > _MOST_LOOKS:
                raise TooDeepError("runs more files than any launch")
            name = written.rpartition("/")[2]
            if not name or name == Path(source.name).name:
                return None
            found = self._given.get(name) or self._beside(folder / name)
            if found is not None:
                self.used.add(found.name)
            return found

        return look

    def _beside(self, path: Path) -> Source | None:
        if path not in self._read:
            try:
                self._read[path] = read_source(path)
            except InputError:
                self._read[path] = None
        return self._read[path]


def nothing_beside(_: str) -> Source | None:
    """Find no file: for a text that stands in none."""
    return None


def script_at(words: Sequence[SourceWord]) -> int | None:
    """Return the index of the script that a command runs, None where it runs none that is told.

    A script is named first, or behind programs that run what follows them.
    """
    if not words:
        return None
    first = words[0].text.rpartition("/")[2]
    if first not in _WRAPPERS:
        return 0 if first.endswith(_ENDINGS) and "/" in words[0].text else None
    for at, word in enumerate(words[1:], start=1):
        before = words[at - 1].text
        name = word.text.rpartition("/")[2]
        if word.text.startswith("-") or any(mark.isspace() for mark in name):
            continue
        if name.endswith(_ENDINGS) or before.rpartition("/")[2] in _SHELLS:
            return at if name not in _WRAPPERS else None
    return None
