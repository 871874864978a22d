"""The distribution's Chromium without a window, asked over a pipe by its own protocol; no driver in between."""

import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
TIMEOUT_S = 60
CONTRASTS = """(() => {
  const number = c => c.match(/[\\d.]+/g).map(Number);
  const light = c => { const [r, g, b] = number(c).map(v => v / 255).map(v =>
    v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const back = e => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor;
    if (!/, 0\\)$/.test(c) && c !== 'transparent') return c; } return 'rgb(255,255,255)'; };
  return [...document.querySelectorAll('%s')].filter(e => e.offsetParent).map(e => {
    const [a, b] = [light(getComputedStyle(e).color), light(back(e))].sort((x, y) => y - x);
    return [(a + 0.05) / (b + 0.05), e.textContent.slice(0, 40)]; });
})()"""
"""[contrast with what is behind it, text] of the elements that a selector names."""


class NoBrowser(RuntimeError):
    """There is no Chromium; the message says what to install."""


def find() -> str:
    """The browser's path."""
    for name in NAMES:
        if found := shutil.which(name):
            return found
    raise NoBrowser("no Chromium: install the package chromium, or skip with KAFKALOG_NO_BROWSER=1")


class Browser:
    """One page, which `go` loads; what it fetches and says is noted."""

    def __init__(self, profile: Path) -> None:
        self._profile = profile
        self._number = 0
        self._rest = b""
        self.requested: list[str] = []
        self.complaints: list[str] = []

    def __enter__(self) -> Self:
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()
        # it reads commands from descriptor 3 and answers on 4
        shell = f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}'
        root = ("--no-sandbox",) if os.geteuid() == 0 else ()
        options = ("--headless", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--hide-scrollbars",
                   "--disable-background-networking", f"--user-data-dir={self._profile}")  # fmt: skip
        self._process = subprocess.Popen(
            ["bash", "-c", shell, "browser", find(), *options, *root, "--remote-debugging-pipe"],
            pass_fds=(theirs_in, theirs_out), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(theirs_in)
        os.close(theirs_out)
        self._session: str | None = None
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.ask(f"{domain}.enable")
        return self

    def __exit__(self, *raised: object) -> None:
        os.close(self._out)
        os.close(self._in)
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def ask(self, method: str, **parameters: Any) -> Any:
        """The result of a command."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            found = self._next()
            if found.get("id") == self._number:
                assert "error" not in found, (method, found["error"])
                return found["result"]

    def go(self, url: str, *, width: int, height: int = 900, scheme: str = "light") -> None:
        """Loads a page in a window of that size, for a user who prefers that colour scheme."""
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1,
                 mobile=width < 600)  # fmt: skip
        self.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.requested.clear()
        self.complaints.clear()
        self.ask("Page.navigate", url=url)
        while self._next().get("method") != "Page.loadEventFired":
            pass

    def value(self, expression: str) -> Any:
        """Return the value of a JavaScript expression in the page."""
        found = self.ask("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def _next(self) -> Any:
        deadline = time.monotonic() + TIMEOUT_S
        waiting = select.poll()  # for any descriptor: select() takes those below 1024
        waiting.register(self._in, select.POLLIN)
        while b"\0" not in self._rest:
            ready = waiting.poll(max(deadline - time.monotonic(), 0) * 1000)
            more = os.read(self._in, 1 << 16) if ready else b""
            assert more, "the browser says nothing more"
            self._rest += more
        line, _, self._rest = self._rest.partition(b"\0")
        message = json.loads(line)
        method, parameters = message.get("method"), message.get("params", {})
        if method == "Network.requestWillBeSent":
            self.requested.append(parameters["request"]["url"])
        elif method in ("Log.entryAdded", "Runtime.exceptionThrown"):
            self.complaints.append(str(parameters))
        return message


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    if os.environ.get("KAFKALOG_NO_BROWSER") == "1":
        pytest.skip("KAFKALOG_NO_BROWSER=1")
    try:
        find()
    except NoBrowser as missing:
        pytest.fail(str(missing), pytrace=False)
    with Browser(tmp_path_factory.mktemp("profile")) as one:
        yield one
