"""The flags of an installed engine, asked of the interpreter that it is installed in."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from k31ctl.errors import InputError, UsageError

_SCRIPT: Final = Path(__file__).with_name("flag_script.py")
_NAMES: Final = {"vllm": "vLLM", "sglang": "SGLang", "tokenspeed": "TokenSpeed"}
_LONGEST_S: Final = 600
_MAX_SHOWN: Final = 200


def extract_flags(engine: str, *, python: str, checked: str) -> dict[str, Any]:
    """Return the catalog of an engine as its file holds it.

    ``python`` is the interpreter to ask, this one where it is empty; ``checked`` is the date.
    """
    if engine not in _NAMES:
        raise UsageError(
            f"flags of {engine[:60]!r} cannot be extracted",
            where="ENGINE",
            remedy=f"use one of {', '.join(_NAMES)}",
        )
    found = _ask(engine, python or sys.executable)
    version = found.pop("version")
    stubs = found.get("stubbed_modules")
    place = "a made-up sm_103; the modules listed were replaced" if stubs else "a CPU"
    method = f"{found.pop('method')}, imported on a CPU; defaults that depend on a GPU are those of"
    return {
        "id": f"{engine}-{version}",
        "name": f"{_NAMES[engine]} {version}, {len(found['flags'])} flags",
        "engine": engine,
        "version": version,
        "command": found.pop("command"),
        "method": f"{method} {place}",
        "source": f"the parser of {engine} {version} itself, run without a GPU",
        "checked": checked,
        "torch": found.pop("torch"),
        "abbreviations": found.pop("abbreviations", True),
        **found,
    }


def _ask(engine: str, python: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "flags.json"
        command = [python, str(_SCRIPT), engine, str(answer)]
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_LONGEST_S,
                check=False,
            )
        except OSError as error:
            raise InputError(
                f"cannot be started: {error.strerror}",
                where=python,
                remedy="pass --python the interpreter of the environment with the engine",
            ) from None
        except subprocess.TimeoutExpired:
            raise InputError(
                f"importing {engine} took longer than {_LONGEST_S} s",
                where=python,
                remedy="try the import by hand in that environment",
            ) from None
        if done.returncode or not answer.exists():
            raise InputError(
                f"{engine} cannot be asked for its flags: {_last_line(done.stderr)}",
                where=python,
                remedy=f"pass --python an interpreter in which `import {engine}` works",
            )
        held: dict[str, Any] = json.loads(answer.read_text())
        return held


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:_MAX_SHOWN] if lines else "no message"
