"""A headless Chromium over its debugging pipe: opens pages, runs scripts, takes pictures."""

import base64
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome", "chromium-headless-shell")
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
    "--remote-debugging-pipe", "--no-first-run", "--disable-extensions",
    "--disable-background-networking", "--disable-component-update",
)  # fmt: skip

# A browser reads commands from descriptor 3 and answers on 4, wherever the pipes were before.
LAUNCH = """
import fcntl, os, sys
ends = [fcntl.fcntl(int(end), fcntl.F_DUPFD, 10) for end in sys.argv[1:3]]
os.dup2(ends[0], 3)
os.dup2(ends[1], 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


def executable() -> str | None:
    """The browser of this machine, or None."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class Page:
    """One tab. ``errors`` holds what its console complained of, ``requests`` what it asked for."""

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self._to, self._from, self._rest, self._last = to_browser, from_browser, b"", 0
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> Any:
        """The result of one command of the debugging protocol."""
        self._last += 1
        message = {"id": self._last, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while (answer := self._message()).get("id") != self._last:
            self.events.append(answer)
        assert "error" not in answer, answer
        return answer["result"]

    def open(self, path: Path, *, width: int = 1200, scheme: str = "light") -> None:
        """Load a file at a width, in a light or dark theme."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=900,
                  deviceScaleFactor=1, mobile=False)  # fmt: skip
        theme = {"name": "prefers-color-scheme", "value": scheme}
        self.call("Emulation.setEmulatedMedia", features=[theme])
        self.events.clear()
        self.call("Page.navigate", url=path.as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._message())

    def run(self, script: str) -> Any:
        """The value of an expression in the page."""
        found = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def press(self, key: str) -> None:
        """Press and release a key that has a name, such as ArrowRight or Tab."""
        code = {"ArrowRight": 39, "ArrowLeft": 37, "Tab": 9}[key]
        for kind in ("rawKeyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key,
                      windowsVirtualKeyCode=code)  # fmt: skip

    def picture(self) -> bytes:
        """The whole page as PNG."""
        shot = self.call("Page.captureScreenshot", captureBeyondViewport=True)
        return base64.b64decode(shot["data"])

    def paper(self) -> bytes:
        """The page as PDF, with its backgrounds."""
        return base64.b64decode(
            self.call("Page.printToPDF", printBackground=True, preferCSSPageSize=True)["data"]
        )

    @property
    def errors(self) -> list[dict[str, Any]]:
        """What the console and the page's scripts complained of."""
        loud = ("Runtime.exceptionThrown", "Log.entryAdded", "Runtime.consoleAPICalled")
        return [event for event in self.events if event.get("method") in loud]

    @property
    def requests(self) -> list[str]:
        """The addresses that the page asked for."""
        sent = (e for e in self.events if e.get("method") == "Network.requestWillBeSent")
        return [event["params"]["request"]["url"] for event in sent]

    def _message(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            more = os.read(self._from, 1 << 16)
            assert more, "the browser went away"
            self._rest += more
        first, self._rest = self._rest.split(b"\0", 1)
        found: dict[str, Any] = json.loads(first)
        return found


@contextmanager
def browser(profile: Path) -> Iterator[Page]:
    """A tab of a browser with an empty profile, closed at the end."""
    name = executable()
    assert name is not None, "no browser on PATH"
    to_read, to_write = os.pipe()
    from_read, from_write = os.pipe()
    ends = (str(to_read), str(from_write))
    process = subprocess.Popen(
        [sys.executable, "-c", LAUNCH, *ends, name, *FLAGS, f"--user-data-dir={profile}"],
        pass_fds=(to_read, from_write),
        stderr=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    os.close(to_read)
    os.close(from_write)
    try:
        yield Page(to_write, from_read)
    finally:
        process.terminate()
        process.wait(timeout=20)
        os.close(to_write)
        os.close(from_read)
