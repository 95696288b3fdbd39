"""The fixtures of all tests, and what watches over each of them."""

from __future__ import annotations

import functools
import gc
import os
import re
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from types import ModuleType
from typing import Any

import hypothesis
import numpy as np
import pytest
from _pytest.doctest import DoctestModule

from envkit._shared.quiet_sdl import prepare_sdl
from envkit.realtime import RealTimeEnvironment
from envkit.recording.writer import Writer
from envkit.types import RandomSource
from tests import own_process, residue, worker_imports
from tests.waiting import PATIENCE

# Machines that are busy with other things are slow at times, and no test is about
# how long an example takes, or how many were drawn in vain, which is luck. For a long
# look: pytest --hypothesis-profile=thorough -o faulthandler_timeout=0.
_LUCK = [hypothesis.HealthCheck.too_slow, hypothesis.HealthCheck.filter_too_much]
for name, count in {"envkit": 25, "thorough": 2000}.items():
    hypothesis.settings.register_profile(
        name, deadline=None, max_examples=count, suppress_health_check=_LUCK
    )
hypothesis.settings.load_profile("envkit")

PARALLEL = Path(__file__).parent / "parallel"
ROOT = Path(__file__).parents[1]
# What compiles with TensorFlow: tests, docstrings, and the guide.
TENSORFLOW = {ROOT / "tests" / "tf", ROOT / "envkit" / "tf"}
TENSORFLOW |= {ROOT / "docs" / "tensorflow.md", ROOT / "docs" / "tutorial.md"}
TENSORFLOW.add(ROOT / "tests" / "lost" / "test_tensorflow.py")
# The files of tests that take longest: they compute, where most others wait.
LONG = {
    Path(__file__).parent / file
    for file in (
        "testing/test_checks.py",
        "wrappers/test_contract.py",
        "wrappers/test_before_and_after.py",
        "test_examples.py",
    )
}
HEAVY = {Path(__file__).parent / folder for folder in ("adapters", "realtime")}

# The words of the reasons for which tests are skipped.
_MISSING = re.compile(r"not (be )?installed")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--ple", metavar="PATH", help="a checkout of PLE, to test with real games"
    )
    parser.addoption(
        "--nothing-missing",
        action="store_true",
        help="fail what needs a library that is not installed, instead of skipping it",
    )
    parser.addoption(
        "--worker-imports",
        action="store_true",
        help="name the tests whose workers import pytest, which takes them long",
    )


def pytest_configure(config: pytest.Config) -> None:
    global _config
    _config = config
    # Without a display pygame would load OpenGL, whose compiler and that of TensorFlow
    # do not live in one process: it crashes. Tests open windows on this driver.
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    prepare_sdl(None)
    if residue.ON_LINUX:
        residue.this_run()
    # Not in workers of xdist, which inherit it.
    if config.getoption("--worker-imports") and worker_imports.FOUND not in os.environ:
        worker_imports.watch(Path(tempfile.mkdtemp(prefix="worker-imports-")))


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Names the tests whose workers import pytest, if asked to."""
    if config.getoption("--worker-imports"):
        terminalreporter.section("workers that import pytest")
        for line in worker_imports.found():
            terminalreporter.line(line)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks what is left to `make test-all`, and brings tests into their order."""
    items.sort(key=lambda item: _place(item.path))
    for item in items:
        if _is_heavy(item.path) and item.get_closest_marker("slow"):
            item.add_marker("heavy")


@functools.cache
def _place(path: Path) -> tuple[bool, bool, bool]:
    # TensorFlow's compiler crashes if it is first used after MuJoCo was; and what takes
    # long comes early, so that no process is left with it alone in the end.
    return (
        TENSORFLOW.isdisjoint([path, *path.parents]),
        path not in LONG,
        PARALLEL not in path.parents,
    )


@functools.cache
def _is_heavy(path: Path) -> bool:
    return not HEAVY.isdisjoint(path.parents)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Keeps what was collected out of garbage collections.

    Thousands of tests stay to the end. To look through them takes a tenth of a second
    each time, and what is looked through is copied in every process that is forked.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(file_path: Path) -> Iterator[None]:
    """Looks for examples in no test: it takes as long as collecting the tests."""
    collectors = yield
    if not file_path.name.startswith("test_"):
        return collectors
    return [each for each in collectors if not isinstance(each, DoctestModule)]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(
    item: pytest.Item, nextitem: pytest.Item | None
) -> bool | None:
    """Runs a test that is marked `own_process` in one."""
    if not own_process.is_wanted(item):
        return None
    hook = item.ihook
    hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    with tempfile.TemporaryDirectory() as folder:
        for report in own_process.run(item, Path(folder)):
            hook.pytest_runtest_logreport(report=report)
    # What the test before has left for this one, which has not been set up here.
    item.session._setupstate.teardown_exact(nextitem)
    hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


_config: pytest.Config


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Hands reports of a test in a process of its own to the process that waits."""
    own_process.write(report, _config)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Fails a test that would be skipped for want of a library, if asked to."""
    return _unless_missing(item.config, (yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Iterator[None]:
    """Does the same for files that would be skipped."""
    return _unless_missing(collector.config, (yield))


def _unless_missing(config: pytest.Config, report: Any) -> Any:
    # Where it is, and why it is skipped; what is expected to fail tells something else.
    why = report.longrepr[-1] if isinstance(report.longrepr, tuple) else ""
    if config.getoption("--nothing-missing") and _MISSING.search(why):
        report.outcome, report.longrepr = "failed", f"--nothing-missing: {why}"
    return report


@pytest.fixture
def nothing_left_behind() -> Iterator[None]:
    """Fails a test that leaks a process, thread, descriptor or shared segment."""
    before = residue.Residue.now()
    yield
    if left := residue.left_behind(before):
        residue.end_processes(left)
        pytest.fail(residue.described(left), pytrace=False)


@pytest.fixture(autouse=True)
def _nothing_left_behind_by_parallel_tests(request: pytest.FixtureRequest) -> None:
    # Before all other fixtures of the test, so it looks when those are done.
    if PARALLEL in request.path.parents:
        request.getfixturevalue("nothing_left_behind")


@pytest.fixture(
    scope="session",  # it makes something new with each call, so tests may share it
    params=[np.random.default_rng, np.random.RandomState],
    ids=["Generator", "RandomState"],
)
def make_rng(request: pytest.FixtureRequest) -> Callable[[int], RandomSource]:
    """Makes a source of random numbers from a seed: NumPy's new kind, then its old."""
    return request.param


@pytest.fixture(scope="session")
def message_of() -> Callable[[type[Exception], Callable[[], object]], str]:
    """Returns the message of the error that a call must raise, to compare it whole."""

    def message(error: type[Exception], call: Callable[[], object]) -> str:
        with pytest.raises(error) as caught:
            call()
        return str(caught.value)

    return message


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Keeps the thread of every new `Record` from writing until it is set."""
    opened = threading.Event()
    run = Writer._run

    def wait(writer: Writer) -> None:
        opened.wait()
        run(writer)

    monkeypatch.setattr(Writer, "_run", wait)
    yield opened
    opened.set()


@pytest.fixture(scope="session")
def in_thread() -> Callable[..., Callable[[], object]]:
    """Starts a function in a thread, and returns what waits for what it returns.

    What the function raises, the waiting raises; and if it hangs, it says so.
    """

    def start(function: Callable[..., object], *args: object) -> Callable[[], object]:
        outcome: Future[object] = Future()

        def run() -> None:
            try:
                outcome.set_result(function(*args))
            except BaseException as error:
                outcome.set_exception(error)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()

        def result() -> object:
            thread.join(PATIENCE)
            assert not thread.is_alive(), "It hangs."
            return outcome.result()

        return result

    return start


@pytest.fixture
def interruptible():
    """Makes Ctrl-C an exception, even where whoever started pytest ignores it.

    A shell without job control starts what runs in the background that way.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def running() -> Iterator[Callable[..., RealTimeEnvironment]]:
    """Makes environments that run in real time, and closes them."""
    made = []

    def make(make_env: Any, hz: float = 200, **options: Any) -> RealTimeEnvironment:
        made.append(RealTimeEnvironment(make_env, hz, **options))
        return made[-1]

    yield make
    for env in made:
        env.close()


@pytest.fixture
def pygame() -> Iterator[ModuleType]:
    """The library, with no display open before and after."""
    library = pytest.importorskip("pygame", reason="pygame is not installed")
    if library.display.get_init():  # It may be that of an environment in a cycle.
        gc.collect()
        library.display.quit()
    # What there is by now is not looked at again: with TensorFlow loaded, a collection
    # takes seconds, and with this, what a test leaves behind is collected in no time.
    gc.freeze()
    yield library
    gc.collect()
    library.display.quit()


@pytest.fixture
def ple_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Lets `import ple` find what stands in for PLE."""
    modules = {
        "__init__": "from tests.adapters.ple_games import PLE",
        "games/__init__": 'print("Couldn\'t import doom")',
        "games/catcher": "from tests.adapters.ple_games import Catcher",
        "games/monsterkong": "from tests.adapters.ple_games import MonsterKong",
        "games/quietcatcher": "from tests.adapters.ple_games import QuietCatcher",
        "games/broken": "import no_such_library",
        "games/loud": "print('A game of my own.')\nclass Loud: pass",
    }
    (tmp_path / "ple/games").mkdir(parents=True)
    for name, source in modules.items():
        (tmp_path / f"ple/{name}.py").write_text(f"{source}\n", "utf-8")
    for name in [name for name in sys.modules if name.split(".")[0] == "ple"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(tmp_path)
    yield
    for name in [name for name in sys.modules if name.split(".")[0] == "ple"]:
        del sys.modules[name]


@pytest.fixture
def ple_checkout(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """The folder of the real PLE; workers find it, too."""
    option = request.config.getoption("--ple")
    if option is None:
        pytest.skip("needs the real PLE: pytest --ple=PATH, make test-all PLE=PATH")
    path = (request.config.invocation_params.dir / option).resolve()
    if not (path / "ple/__init__.py").is_file():
        pytest.fail(f"--ple={option} is no checkout of PLE: it has no folder ple")
    monkeypatch.syspath_prepend(path)
    return path
