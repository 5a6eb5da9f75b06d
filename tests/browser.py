"""A browser that is led by its DevTools pipe: what pages look like, and to whom.

Shared by tests of reports, of the daemon's page and of the documents.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

VIEWS = (("light", 400), ("light", 1280), ("dark", 400), ("dark", 1280))
OWN = ("file:", "data:", "blob:")
AXE = "axe_playwright_python"
"""The package that brings axe-core along, of which nothing else is taken."""

RULES = """axe.run({resultTypes: ["violations"]}).then(found => JSON.stringify(
  found.violations.map(one => [one.id, ...one.nodes.map(node => node.target.join(" "))])
))"""
CUT = """JSON.stringify([
  ...document.documentElement.scrollWidth > innerWidth ? ["the page"] : [],
  ...[...document.querySelectorAll("main svg text")].filter(text => {
    const box = text.getBoundingClientRect();
    const room = text.ownerSVGElement.getBoundingClientRect();
    return box.left < room.left - 1 || box.right > room.right + 1
      || box.top < room.top - 1 || box.bottom > room.bottom + 1;
  }).map(text => text.textContent)])"""
SMALL = """JSON.stringify([...document.querySelectorAll("main svg text")].filter(
  text => text.textContent.trim() && text.getBoundingClientRect().height > 0
    && Math.min(text.getBoundingClientRect().height,
      text.getBoundingClientRect().width) < 8
    && text.textContent.length > 2).map(text => text.textContent))"""


class Browser:
    """Chromium without a window, showing one page at a time.

    Attributes
    ----------
    asked : list of str
        Addresses that were asked for since the last `show`.
    """

    def __init__(self, to: int, of: int) -> None:
        self._to, self._of = to, of
        self._rest, self._number, self._session = b"", 0, ""
        self.asked: list[str] = []
        made = self._do("Target.createTarget", url="about:blank")
        self._session = self._do(
            "Target.attachToTarget", targetId=made["targetId"], flatten=True
        )["sessionId"]
        for domain in ("Page", "Network"):
            self._do(f"{domain}.enable")

    def show(self, page: Path, scheme: str, width: int, height: int = 900) -> None:
        """Load a page in a window so many pixels wide, in light or in dark."""
        self._do(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        self._do(
            "Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": scheme}],
        )
        self.asked.clear()
        self._do("Page.navigate", url=page.as_uri())
        while self._next().get("method") != "Page.loadEventFired":
            pass

    def value(self, script: str) -> Any:
        """Return what a script says that ends in JSON, or in a promise of it."""
        said = self._do(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in said, said
        return json.loads(said["result"]["value"])

    def violations(self) -> list[list[str]]:
        """Return the rules of axe that the page breaks, each with the places where."""
        found = find_spec(AXE)
        assert found is not None
        assert found.origin is not None
        self._do(
            "Runtime.evaluate",
            expression=Path(found.origin).with_name("axe.min.js").read_text(),
        )
        broken: list[list[str]] = self.value(RULES)
        return broken

    def _do(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        left = json.dumps(message).encode() + b"\0"
        while left:
            left = left[os.write(self._to, left) :]
        while (answer := self._next()).get("id") != self._number:
            pass
        assert "result" in answer, answer
        result: dict[str, Any] = answer["result"]
        return result

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            more = os.read(self._of, 1 << 20)
            assert more, "the browser has ended"
            self._rest += more
        line, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        if message.get("method") == "Network.requestWillBeSent":
            self.asked.append(message["params"]["request"]["url"])
        return message


@contextmanager
def opened() -> Iterator[Browser]:
    """Start a browser, and end it."""
    program = shutil.which("chromium-headless-shell") or ""
    (theirs_in, to), (of, theirs_out) = os.pipe(), os.pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        # It reads 3 and writes 4, whatever numbers our ends have.
        ends = f"exec 3<&{theirs_in} 4>&{theirs_out}"
        child = subprocess.Popen(
            [
                *("bash", "-c", f'{ends}; exec "$@"', "bash"),
                *(program, "--no-sandbox", "--remote-debugging-pipe"),
                f"--user-data-dir={profile}",
            ],
            pass_fds=(theirs_in, theirs_out),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        try:
            yield Browser(to, of)
        finally:
            os.close(to)
            os.close(of)
            child.kill()
            child.wait()


def faults(
    browser: Browser, page: Path, views: Sequence[tuple[str, int]] = VIEWS
) -> list[str]:
    """Return what is wrong with a page in light and dark, narrow and wide.

    Rules of axe that it breaks, words in drawings that are cut or too small to read,
    a page wider than its window, and what is fetched from elsewhere.
    """
    found = []
    for scheme, width in views:
        browser.show(page, scheme, width)
        away = [url for url in browser.asked if not url.startswith(OWN)]
        looks = [*browser.value(CUT), *browser.value(SMALL)]
        wrong = [*browser.violations(), *looks, *away]
        found += [f"{page.name}, {scheme}, {width} px: {one}" for one in wrong]
    return found
