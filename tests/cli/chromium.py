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
    """A page that is open.

    Attributes:
        address: Where its own WebSocket is.
        requested: What it has asked servers for.
        errors: What has gone wrong in it.
    """

    def __init__(self, socket: Any, address: str) -> None:
        self._socket = socket
        self.address = address
        self._numbers = itertools.count(1)
        self.requested: list[str] = []
        self.errors: list[str] = []
        self._loaded: set[str] = set()

    def do(self, method: str, **parameters: Any) -> Any:
        """Sends a command, and returns its result."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters}
        self._socket.send(json.dumps(message))
        while (answer := self._receive()).get("id") != number:
            pass
        assert "error" not in answer, answer
        return answer["result"]

    def _receive(self) -> Any:
        """Receives an answer or an event, and keeps what events tell."""
        message = json.loads(self._socket.recv(timeout=PATIENCE))
        method, told = message.get("method"), message.get("params", {})
        if method == "Network.requestWillBeSent":
            self.requested.append(told["request"]["url"])
        elif method in ("Runtime.exceptionThrown", "Log.entryAdded"):
            if told.get("entry", {}).get("level", "error") == "error":
                self.errors.append(json.dumps(told))
        elif method == "Page.lifecycleEvent" and told["name"] == "load":
            self._loaded.add(told["loaderId"])
        return message

    def _go_to(self, address: str) -> None:
        """Goes to an address, and waits until what is there is loaded.

        The document's own state tells nothing: for a moment, it is that of the page
        before.
        """
        loader = self.do("Page.navigate", url=address)["loaderId"]
        while loader not in self._loaded:
            self._receive()

    def open(self, path: Path | str, width: int = 1200, fragment: str = "") -> None:
        """Opens a file or an address, and waits until it is loaded."""
        self.do("Network.enable")
        self.do("Runtime.enable")
        self.do("Log.enable")
        self.do("Page.enable")
        self.do("Page.setLifecycleEventsEnabled", enabled=True)
        self.do(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=900,
            deviceScaleFactor=1,
            mobile=False,
        )
        # What differs by a fragment alone would not be loaded again.
        self._go_to("about:blank")
        self._go_to((path if isinstance(path, str) else path.as_uri()) + fragment)

    def ask(self, expression: str) -> Any:
        """Returns the value of an expression of JavaScript."""
        result = self.do("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def comes_to(self, expression: str) -> Any:
        """Waits until an expression of JavaScript is true, and returns its value."""
        return until(lambda: self.ask(expression))

    def text(self, selector: str) -> str:
        """Returns the text of an element."""
        return str(self.ask(f"document.querySelector({selector!r}).textContent"))

    def press(self, key: str) -> None:
        """Presses a key and lets it go."""
        for kind in ("keyDown", "keyUp"):
            text = {"text": key} if len(key) == 1 and kind == "keyDown" else {}
            self.do("Input.dispatchKeyEvent", type=kind, key=key, code=key, **text)

    @contextlib.contextmanager
    def another(self) -> Iterator[Page]:
        """Opens another tab, and closes it if that has not been done."""
        target = self.do("Target.createTarget", url="about:blank")["targetId"]
        with page_at(f"{self.address.rpartition('/')[0]}/{target}") as page:
            yield page
        targets = self.do("Target.getTargets")["targetInfos"]
        if target in [each["targetId"] for each in targets]:
            self.do("Target.closeTarget", targetId=target)


@contextlib.contextmanager
def page_at(address: str) -> Iterator[Page]:
    """Connects to a page that is open."""
    from websockets.sync.client import connect

    with connect(address, max_size=None, proxy=None) as socket:
        yield Page(socket, address)


def _page_listed_at(port: str) -> str | None:
    with urlopen(f"http://127.0.0.1:{port}/json/list", timeout=PATIENCE) as answer:
        targets = json.load(answer)
    pages = (each for each in targets if each["type"] == "page")
    return next((str(each["webSocketDebuggerUrl"]) for each in pages), None)


@contextlib.contextmanager
def chromium(folder: Path, *options: str) -> Iterator[Page]:
    """Starts it with a profile in a folder of its own."""
    process = subprocess.Popen(
        [
            str(CHROMIUM),
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--remote-debugging-port=0",
            f"--user-data-dir={folder}",
            *options,
            "about:blank",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        told = folder / "DevToolsActivePort"
        assert until(lambda: told.exists() and "\n" in told.read_text("utf-8"))
        port = told.read_text("utf-8").split("\n")[0]
        # It answers a moment before it has a page.
        address = until(lambda: _page_listed_at(port))
        assert address is not None
        with page_at(address) as page:
            yield page
    finally:
        process.terminate()
        process.wait(PATIENCE)
