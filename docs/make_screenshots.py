"""Make the pictures of the documents from the program's own output.

``python docs/make_screenshots.py`` runs each command and draws what it printed as SVG;
``tests/test_site.py`` draws those again whose output is the same everywhere. Fetch is run against
a hub on loopback, bench against the embedded engine, whose report a browser then photographs.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from PIL import Image

ROOT: Final = Path(__file__).parents[1]
IMAGES: Final = ROOT / "docs" / "images"
LAUNCH: Final = """#!/usr/bin/env bash
export VLLM_ENGINE_READY_TIMEOUT_S=600
exec vllm serve moonshotai/Kimi-K3 --tensor-parallel-size 8 --trust-remote-code \\
  --enable-auto-tool-choice --tool-call-parser kimi_k2 --reasoning-parser kimi_k3
"""
SAME_EVERYWHERE: Final = {
    "plan.svg": ("k31ctl plan", r"(?s).*?(?=\n  context  )"),
    "lint.svg": ("k31ctl lint launch.sh --on 8x-b300 --engine vllm@0.33.0", r"(?s).*"),
}
HOST: Final = "http://HOST:8000"
_SCROLL_BAR: Final = 15
_COLUMN: Final = 7.8
_ROW: Final = 17
_EDGE: Final = 14
_SVG: Final = """<svg xmlns="http://www.w3.org/2000/svg" width="{w:.0f}" height="{h}" viewBox="0 0 {w:.0f} {h}">
<title>{title}</title>
<rect width="100%" height="100%" rx="7" fill="#17212b"/>
<g font-family="ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace" font-size="13">
{rows}
</g>
</svg>
"""  # noqa: E501


def drawn(command: str, output: str) -> str:
    """Return a terminal with a command and what it printed, as SVG without fonts of its own."""
    lines = [f"$ {command}", *output.rstrip("\n").split("\n")]
    rows = [_row(number, line) for number, line in enumerate(lines) if line]
    width = 2 * _EDGE + _COLUMN * max(80, *map(len, lines))
    height = 2 * _EDGE + _ROW * len(lines)
    return _SVG.format(w=width, h=height, title=escape(command), rows="\n".join(rows))


def _row(number: int, line: str) -> str:
    """One line, as wide as its characters whatever font there is."""
    ink = "#7fd1b9" if line.startswith("$ ") else "#dfe7ee"
    text = line.lstrip(" ")
    x, y = _EDGE + _COLUMN * (len(line) - len(text)), _EDGE + _ROW * number + 12
    size = f'textLength="{_COLUMN * len(text):.1f}" lengthAdjust="spacingAndGlyphs"'
    return (
        f'<text x="{x:.1f}" y="{y}" {size} fill="{ink}" xml:space="preserve">{escape(text)}</text>'
    )


def ran(command: str, folder: Path, **environment: str) -> str:
    """Return what a command of the program answers on standard output."""
    done = subprocess.run(
        [sys.executable, "-m", *command.split()],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "80", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        check=False,
    )
    return done.stdout


def same_everywhere(name: str, folder: Path) -> str:
    """Return a picture of a command that says the same on every machine."""
    (folder / "launch.sh").write_text(LAUNCH)
    command, shown = SAME_EVERYWHERE[name]
    output = re.match(shown, ran(command, folder))
    assert output is not None, command
    return drawn(command, output[0])


def fetched(folder: Path) -> str:
    """Return a picture of a plan and a download, from a hub on loopback."""
    from tests.fetch.hub_server import HubServer, running_hub  # noqa: PLC0415  found once ROOT is on the path

    ran("k31ctl tiny tiny-k31", folder)
    files = {path.name: path.read_bytes() for path in (folder / "tiny-k31").iterdir()}
    with running_hub(HubServer(repo="moonshotai/tiny-k31", files=files)) as hub:
        command = "k31ctl fetch moonshotai/tiny-k31 --to weights"
        plan = ran(f"{command} --dry-run --endpoint {hub.url}", folder)
        done = ran(f"{command} --endpoint {hub.url}", folder)
    output = f"{plan}$ {command}\n{done}".replace(hub.url, "http://HUB")
    return drawn(f"{command} --dry-run", output)


@contextmanager
def embedded(folder: Path) -> Iterator[str]:
    """The address of the embedded engine with a tiny checkpoint."""
    options = ("--engine", "embedded", "--served-name", "tiny", "--port", "0", "--device", "cpu")
    process = subprocess.Popen(
        [sys.executable, "-m", "k31ctl", "serve", "tiny-k31", *options],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        ready = next(line for line in process.stdout if line.startswith("ready: "))
        yield ready.split()[3].removesuffix("/v1")
    finally:
        process.terminate()
        process.communicate()


def measured(folder: Path) -> tuple[str, bytes]:
    """Return a picture of a benchmark's summary, and one of the head of its page."""
    from tests.report.browser import browser  # noqa: PLC0415  the same

    load = "--concurrency 1,4 --duration 15 --prompt-tokens 64 --output-tokens 24"
    with embedded(folder) as url:
        said = ran(f"k31ctl bench {url} {load} --html bench.html", folder)
    report = folder / "bench.html"
    report.write_text(report.read_text().replace(url, HOST))
    with browser(folder / "profile") as page:
        page.open(report, width=1000)
        picture = Image.open(BytesIO(page.picture()))
    head = picture.crop((0, 0, 1000 - _SCROLL_BAR, min(picture.height, 1100))).quantize(64)
    kept = BytesIO()
    head.save(kept, "PNG", optimize=True)
    return drawn(f"k31ctl bench {HOST} {load}", said.replace(url, HOST)), kept.getvalue()


def main() -> None:
    """Make every picture anew."""
    sys.path.insert(0, str(ROOT))
    IMAGES.mkdir(exist_ok=True)
    with TemporaryDirectory() as name:
        folder = Path(name)
        for picture in SAME_EVERYWHERE:
            (IMAGES / picture).write_text(same_everywhere(picture, folder), encoding="utf-8")
        (IMAGES / "fetch.svg").write_text(fetched(folder), encoding="utf-8")
        summary, page = measured(folder)
        (IMAGES / "bench.svg").write_text(summary, encoding="utf-8")
        (IMAGES / "bench_report.png").write_bytes(page)


if __name__ == "__main__":
    main()
