"""A headless Chromium that tests ask what a page shows, by its DevTools protocol."""

from __future__ import annotations

import contextlib
import itertools
import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from tests.waiting import PATIENCE, until

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))),
    None,
)
needs_chromium = pytest.mark.skipif(
    CHROMIUM is None, reason="Chromium is not installed"
)


class Page:
    """A page that is open."""

    def __init__(self, socket: Any) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self.requested: list[str] = []
        self.errors: list[str] = []

    def do(self, method: str, **parameters: Any) -> Any:
        """Sends a command, and returns its result."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters}
        self._socket.send(json.dumps(message))
        while True:
            answer = json.loads(self._socket.recv(timeout=PATIENCE))
            if answer.get("method") == "Network.requestWillBeSent":
                self.requested.append(answer["params"]["request"]["url"])
            elif answer.get("method") in ("Runtime.exceptionThrown", "Log.entryAdded"):
                self.errors.append(json.dumps(answer["params"]))
            if answer.get("id") == number:
                assert "error" not in answer, answer
                return answer["result"]

    def open(self, path: Path, width: int = 1200, fragment: str = "") -> None:
        """Opens a file in a window of a width, and waits until it is loaded."""
        self.do("Network.enable")
        self.do("Runtime.enable")
        self.do("Log.enable")
        self.do(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=900,
            deviceScaleFactor=1,
            mobile=False,
        )
        self.do("Page.navigate", url=path.as_uri() + fragment)
        assert until(lambda: self.ask("document.readyState") == "complete")

    def ask(self, expression: str) -> Any:
        """Returns the value of an expression of JavaScript."""
        result = self.do("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def text(self, selector: str) -> str:
        """Returns the text of an element."""
        return str(self.ask(f"document.querySelector({selector!r}).textContent"))

    def press(self, key: str) -> None:
        """Presses a key and lets it go."""
        for kind in ("keyDown", "keyUp"):
            text = {"text": key} if len(key) == 1 and kind == "keyDown" else {}
            self.do("Input.dispatchKeyEvent", type=kind, key=key, code=key, **text)


@contextlib.contextmanager
def chromium(folder: Path) -> Iterator[Page]:
    """Starts it with a profile in a folder of its own."""
    from websockets.sync.client import connect

    process = subprocess.Popen(
        [
            str(CHROMIUM),
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--remote-debugging-port=0",
            f"--user-data-dir={folder}",
            "about:blank",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        told = folder / "DevToolsActivePort"
        assert until(lambda: told.exists() and "\n" in told.read_text("utf-8"))
        port = told.read_text("utf-8").split("\n")[0]
        with urlopen(f"http://127.0.0.1:{port}/json/list", timeout=PATIENCE) as answer:
            targets = json.load(answer)
        address = next(
            target["webSocketDebuggerUrl"]
            for target in targets
            if target["type"] == "page"
        )
        with connect(address, max_size=None, proxy=None) as socket:
            yield Page(socket)
    finally:
        process.terminate()
        process.wait(PATIENCE)
