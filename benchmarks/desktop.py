"""What a desktop costs: from a key to its pixels, pictures a second, CPU, decoding.

    python benchmarks/desktop.py

Everything runs on Xvnc with 640 x 480 pixels; without Xvnc or pygame nothing is
measured. From a key to its pixels: a window changes a square when a key goes down, and
each client reports when it has the change, beside asyncvnc and vncdotool where they are
installed (both driven by updates; whole screenshots take them several times as long).
Pictures and CPU: windows draw 60 times a second, each in a real-time desktop in a
worker of its own. Decoding: a whole picture as Xvnc sends it, of text and of a photo.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import importlib.util
import os
import shutil
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from side_by_side import Contender, Figures, Report, opened, options, take_turns

from envkit import AsyncParallelPyEnvironment
from envkit.desktop import Desktop, DesktopClient
from envkit.desktop.encodings import Decoder
from envkit.desktop.supervisor import Supervisor
from envkit.realtime import RealTimeEnvironment

SCREENS = Path(__file__).with_name("desktop_screens.py")
SIZE = (640, 480)
MIDDLE = (240, 320)  # row and column of the square that a key changes
PATIENCE = 30.0
ENCODINGS = ["raw", "zlib", "zrle", "tight"]
HZ = 60
NEEDED = "Xvnc" if shutil.which("Xvnc") is None else "pygame"
CAN_MEASURE = shutil.which("Xvnc") and importlib.util.find_spec("pygame")


def command(what: str) -> list[str]:
    return [sys.executable, str(SCREENS), what]


@contextlib.contextmanager
def shown(what: str) -> Iterator[tuple[str, int]]:
    """Starts an Xvnc with a window, and returns its address."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    supervisor = Supervisor()
    try:
        size = "{}x{}".format(*SIZE)
        number = supervisor.display(
            [
                *("Xvnc", "-rfbport", str(port), "-localhost"),
                *("-SecurityTypes", "None", "-AlwaysShared", "-FrameRate", "120"),
                *("-depth", "24", "-nolisten", "tcp", "-noreset", "-geometry", size),
            ]
        )
        environ = {"DISPLAY": f":{number}", "XAUTHORITY": supervisor.authority}
        environ["SDL_VIDEODRIVER"] = None
        supervisor.start(command(what), environ)
        with DesktopClient("127.0.0.1", port) as client:
            wait_until(lambda: client.update(0.1) and len(np.unique(client.frame)) > 1)
        yield "127.0.0.1", port
    finally:
        supervisor.close()


def wait_until(is_so: Callable[[], Any]) -> None:
    end = time.monotonic() + PATIENCE
    while not is_so():
        if time.monotonic() > end:
            raise TimeoutError(f"The screen has not changed for {PATIENCE:g} s.")


# From a key to its pixels. Each client reads all the time, and is timed from the press
# to the moment at which it has the changed picture.


class Client:
    """A client that can be timed."""

    def press(self) -> None:
        """Presses a key."""

    def release(self) -> None:
        """Lets go of it."""

    def read(self, seconds: float) -> None:
        """Reads for so long, or until something has come."""

    def colour(self) -> Any:
        """Returns the colour in the middle of the picture."""

    def close(self) -> None:
        """Ends the connection."""


def timed(client: Client) -> Contender:
    """Measures presses, at moments that have nothing to do with the clock of Xvnc."""
    rng = np.random.default_rng(0)

    def settle(seconds: float) -> None:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            client.read(left)

    def changed(before: Any) -> bool:
        if client.colour() == before:
            client.read(0.1)
        return bool(client.colour() != before)

    def measure(seconds: float) -> float:
        times: list[float] = []
        end = time.monotonic() + seconds
        # What the others have changed in their turns comes first.
        settle(0.2)
        while time.monotonic() < end or len(times) < 3:
            settle(rng.uniform(0.015, 0.035))
            before = client.colour()
            began = time.perf_counter()
            client.press()
            wait_until(functools.partial(changed, before))
            times.append(time.perf_counter() - began)
            client.release()
        # A contender's figures are microseconds.
        return 1e6 * float(np.median(times))

    return Contender(close=client.close, measure=measure)


class OfDesktop(Client):
    """A `Desktop`, and its steps."""

    def __init__(self, address: tuple[str, int]) -> None:
        url = "vnc://{}:{}".format(*address)
        self._env = Desktop(display=url, keys=["a"], reset=None)
        self._env.reset()

    def press(self) -> None:
        self._env.step({"keys": np.array([True])})

    def release(self) -> None:
        self._env.step({"keys": np.array([False])})

    def read(self, seconds: float) -> None:
        self._env.screen.update(seconds)

    def colour(self) -> Any:
        return tuple(self._env.screen.frame[MIDDLE])

    def close(self) -> None:
        self._env.close()


class OfClient(Client):
    """A `DesktopClient`."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._client = DesktopClient(*address, encodings=("raw", "copy"))
        self._client.update(PATIENCE)

    def press(self) -> None:
        self._client.key("a", True)

    def release(self) -> None:
        self._client.key("a", False)

    def read(self, seconds: float) -> None:
        self._client.update(seconds)

    def colour(self) -> Any:
        return tuple(self._client.frame[MIDDLE])

    def close(self) -> None:
        self._client.close()


class OfAsyncvnc(Client):
    """The package asyncvnc, driven by changes and not by its screenshots."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._loop = asyncio.new_event_loop()
        self._stack = contextlib.AsyncExitStack()
        self._loop.run_until_complete(self._begin(address))

    async def _begin(self, address: tuple[str, int]) -> None:
        import asyncvnc

        connection = asyncvnc.connect(*address)
        self._client = client = await self._stack.enter_async_context(connection)
        self._news = asyncio.Event()

        async def read_all() -> None:
            client.video.refresh()
            while True:
                if await client.read() is asyncvnc.UpdateType.VIDEO:
                    client.video.refresh()
                    self._news.set()

        self._task = asyncio.ensure_future(read_all())
        while not client.video.is_complete():
            await self._wait(PATIENCE)

    async def _wait(self, seconds: float) -> None:
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._news.wait(), seconds)
        self._news.clear()

    def press(self) -> None:
        self._held = self._client.keyboard.hold("a")
        self._held.__enter__()

    def release(self) -> None:
        self._held.__exit__(None, None, None)

    def read(self, seconds: float) -> None:
        self._loop.run_until_complete(self._wait(seconds))

    def colour(self) -> Any:
        return tuple(self._client.video.data[MIDDLE])

    def close(self) -> None:
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            self._loop.run_until_complete(self._task)
        self._loop.run_until_complete(self._stack.aclose())
        self._loop.close()


class OfVncdotool(Client):
    """The package vncdotool, driven by changes and not by its screenshots."""

    def __init__(self, address: tuple[str, int]) -> None:
        from twisted.internet import reactor
        from vncdotool import api

        self._api, self._reactor = api, reactor
        self._client = api.connect("{}::{}".format(*address), timeout=PATIENCE)
        self._client.refreshScreen(False)
        self._protocol = protocol = self._client.protocol
        # Otherwise a release waits for the next press, and looks as if held.
        self._call(lambda: protocol.transport.setTcpNoDelay(True))
        self._news = threading.Event()
        commit = protocol.commitUpdate

        def committed(rectangles: Any = None) -> None:
            commit(rectangles)
            protocol.framebufferUpdateRequest(incremental=True)
            self._news.set()

        protocol.commitUpdate = committed
        self._call(lambda: protocol.framebufferUpdateRequest(incremental=True))

    def _call(self, function: Callable[[], Any]) -> None:
        """Calls a function in the thread of the reactor."""
        self._reactor.callFromThread(function)

    def press(self) -> None:
        self._call(lambda: self._protocol.keyDown("a"))

    def release(self) -> None:
        self._call(lambda: self._protocol.keyUp("a"))

    def read(self, seconds: float) -> None:
        self._news.wait(seconds)
        self._news.clear()

    def colour(self) -> Any:
        return self._protocol.screen.getpixel(MIDDLE[::-1])

    def close(self) -> None:
        self._client.disconnect()
        self._api.shutdown()


CLIENTS = {
    "Desktop": OfDesktop,
    "DesktopClient": OfClient,
    "asyncvnc": OfAsyncvnc,
    "vncdotool": OfVncdotool,
}


def compare_keys(report: Report, told: Any) -> None:
    figures: Figures = {name: [] for name in CLIENTS}
    if CAN_MEASURE:
        with shown("answers") as address:
            makers = {
                name: functools.partial(lambda kind: timed(kind(address)), kind)
                for name, kind in CLIENTS.items()
                if name.startswith("Desktop") or importlib.util.find_spec(name)
            }
            with opened(makers) as contenders:
                figures |= take_turns(contenders, told.rounds, told.seconds)
    figures = {name: [one / 1e3 for one in each] for name, each in figures.items()}
    report.table("key to pixel, 640 x 480 through Xvnc", figures, "ms")
    mine = figures["Desktop"]
    report.ratio(
        "Desktop: ms from a key to its pixels", mine, [1.0] * len(mine), at_most=20
    )
    for name in ("asyncvnc", "vncdotool"):
        claim = f"Desktop takes this much of {name}'s time from a key to its pixels"
        report.ratio(claim, mine, figures[name])


# Pictures and CPU.


def ticks_of(pid: int) -> tuple[str, int, int]:
    """Returns a process's name, its parent, and the CPU time that it has taken."""
    text = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    name, _, rest = text.partition("(")[2].rpartition(")")
    fields = rest.split()
    return name, int(fields[1]), int(fields[11]) + int(fields[12])


def cpu_seconds() -> dict[str, float]:
    """Returns the CPU time of this process and all below it, by what they do."""
    found = {}
    for name in filter(str.isdecimal, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            found[int(name)] = ticks_of(int(name))
    mine = {os.getpid()}
    while more := {p for p, (_, up, _) in found.items() if up in mine} - mine:
        mine |= more
    spent = {"envkit": 0.0, "Xvnc": 0.0, "programs": 0.0}
    for pid in mine & set(found):
        name, _, ticks = found[pid]
        with contextlib.suppress(OSError):
            arguments = Path(f"/proc/{pid}/cmdline").read_bytes()
            kind = "programs" if SCREENS.name.encode() in arguments else "envkit"
            kind = "Xvnc" if name.startswith("Xvnc") else kind
            spent[kind] += ticks / os.sysconf("SC_CLK_TCK")
    return spent


def watched(count: int, seconds: float) -> Iterator[dict[str, float]]:
    """Runs desktops, and yields figures of each round."""
    make = functools.partial(
        RealTimeEnvironment,
        functools.partial(Desktop, command("moves"), size=SIZE, keys=["a"]),
        HZ,
        host="thread",
    )
    nothing = {"keys": np.zeros((count, 1), bool)}
    with AsyncParallelPyEnvironment([make] * count, num_workers=count) as env:
        env.reset_async()
        env.send(nothing, env.recv().env_ids)
        while True:
            before, began = cpu_seconds(), time.monotonic()
            seen = came = steps = 0
            while (passed := time.monotonic() - began) < seconds or steps < count:
                ids, _ = batch = env.recv(count=1)
                steps += len(ids)
                new = int(np.count_nonzero(batch.info["vnc"]["updates.n"]))
                seen += new
                came += new + int(batch.info["realtime"]["missed_frames"].sum())
                env.send({"keys": nothing["keys"][: len(ids)]}, ids)
            after = cpu_seconds()
            yield {
                "pictures that came": came / count / passed,
                "pictures that were seen": seen / count / passed,
                "steps": steps / count / passed,
                **{
                    f"CPU of {name}": 100 * (after[name] - before[name]) / passed
                    for name in after
                },
            }


def compare_counts(report: Report, told: Any) -> None:
    for count in told.desktops:
        rounds: list[dict[str, float]] = []
        if CAN_MEASURE:
            source = watched(count, max(told.seconds, 0.2))
            next(source)
            rounds = [next(source) for _ in range(told.rounds)]
            source.close()
        desktops = f"{count} desktop{'s' if count > 1 else ''} at {HZ} Hz"
        counted = ["pictures that came", "pictures that were seen", "steps"]
        used = ["CPU of envkit", "CPU of Xvnc", "CPU of programs"]
        for names, title, unit in (
            (counted, f"{desktops}: each", "a second"),
            (used, f"{desktops}: together", "% of a CPU"),
        ):
            table = {name: [one[name] for one in rounds] for name in names}
            # What takes no tick of the clock in a short turn takes a little.
            table = {name: [max(x, 1e-3) for x in xs] for name, xs in table.items()}
            report.table(title, table, unit)


# Decoding.


def timed_decoder(decoder: Decoder, spent: list[float]) -> Decoder:
    """Runs a decoder, and adds up its seconds without its waits for bytes."""
    data: Any = None
    while True:
        began = time.perf_counter()
        try:
            count = decoder.send(data)
        except StopIteration:
            return
        finally:
            spent[0] += time.perf_counter() - began
        data = yield count


def decoded(
    encoding: str, quality: int | None, address: tuple[str, int], told: Any
) -> list[float]:
    """Returns megapixels a second of the decoder alone."""
    figures = []
    chosen = {} if quality is None else {"quality": quality}
    with DesktopClient(*address, encodings=(encoding,), **chosen) as client:
        codec, spent = client._codec, [0.0]
        decode = codec.decode
        codec.decode = lambda *given: timed_decoder(decode(*given), spent)
        client.update(PATIENCE)
        for _ in range(told.rounds):
            pictures, spent[0] = 0, 0.0
            end = time.monotonic() + told.seconds
            while time.monotonic() < end or not pictures:
                client.refresh()
                if not client.update(PATIENCE):
                    raise TimeoutError("Xvnc has sent no picture.")
                pictures += 1
            figures.append(pictures * SIZE[0] * SIZE[1] / 1e6 / spent[0])
    return figures


def compare_decoding(report: Report, told: Any) -> None:
    kinds: dict[str, tuple[str, int | None]] = {
        name: (name, None) for name in ENCODINGS
    }
    if importlib.util.find_spec("PIL"):
        kinds["tight with JPEG"] = ("tight", 6)
    for what in ("window", "photo"):
        figures: Figures = {name: [] for name in kinds}
        if CAN_MEASURE:
            with shown(what) as address:
                for name, (encoding, quality) in kinds.items():
                    figures[name] = decoded(encoding, quality, address, told)
        report.table(f"decoding a {what}", figures, "megapixels a second")


def main() -> None:
    parser = options(__doc__, rounds=5, seconds=2.0)
    parser.add_argument("--desktops", type=int, nargs="+", default=[1, 4])
    told = parser.parse_args()
    report = Report("desktop")
    if not CAN_MEASURE:
        report.fact("not measured, because there is no", NEEDED)
    compare_keys(report, told)
    compare_counts(report, told)
    compare_decoding(report, told)
    report.finish(told.json)


if __name__ == "__main__":
    main()
