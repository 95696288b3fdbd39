"""`envkit list [PATTERN]`: the environments that are available here, by library."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from rich.table import Table
from rich.text import Text

from envkit import registry
from envkit.cli.describe import plain_leaves, short_text
from envkit.cli.output import print_trimmed
from envkit.cli.terminal import add_json, print_json, progress_bar, terminal
from envkit.errors import MissingDependencyError
from envkit.extend import install_command, suggestion
from envkit.registry import make, registered

__all__ = [
    "EXAMPLE",
    "Findings",
    "add_arguments",
    "in_short",
    "look",
    "matches",
    "run",
    "schemes_for",
    "specs_of",
    "survey",
]

EXAMPLE = "envkit list 'gymnasium:*Cart*'"

_FOUND, _NOTHING = 0, 1
_PARTS = ("observation", "action")
# How many names of a library an overview shows.
_SHOWN = 4


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command."""
    parser.description = (
        f"{parser.description}\n"
        "Exit status: 0 if there are some, 1 if nothing matches the pattern."
    )
    parser.add_argument(
        "pattern",
        nargs="?",
        metavar="PATTERN",
        help="a part of the name, or a glob, in any case: pole, 'ale:*ram*', or "
        "gymnasium: for all of a library, which asks no other. Without one: what "
        "envkit brings along, and how many there are of each library.",
    )
    parser.add_argument(
        "--specs",
        action="store_true",
        help="show the specs of all that is listed. For that each environment is made, "
        "which takes long where there are hundreds; without this option that is done "
        "where a pattern matches ten or fewer in all libraries together.",
    )
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Lists environments; the status is 1 if there are none."""
    pattern = arguments.pattern
    schemes = schemes_for(pattern, registry.schemes())
    libraries = survey(
        schemes, pattern, specs=arguments.specs, debug=arguments.debug, watch=_bar
    )
    own = _built_in(pattern)
    rows = own + [row for found in libraries for row in _rows(found, pattern)]
    if arguments.json:
        print_json({"environments": rows, **_others(libraries)})
    elif pattern is None and not arguments.specs:
        _show_overview(own, libraries)
    else:
        _show_matches(rows, libraries, pattern)
    return _FOUND if rows else _NOTHING


@contextlib.contextmanager
def _bar(schemes: Sequence[str]) -> Iterator[Callable[[str], None]]:
    """Shows a bar while libraries are asked; yields what counts their answers."""
    # Where none is asked, importing it would take a sixth of the command's time.
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn

    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
    with progress_bar(*columns) as progress:
        asking = progress.add_task("asking libraries", total=len(schemes))
        waiting = set(schemes)

        def answered(scheme: str) -> None:
            waiting.discard(scheme)
            first = min(waiting, default="")
            progress.update(asking, advance=1, description=f"asking {first}")

        yield answered


def _built_in(pattern: str | None) -> list[dict[str, Any]]:
    names = [name for name in registered() if matches(name, pattern)]
    return [{"target": name, "scheme": None, **specs_of(name)} for name in names]


def _rows(found: Findings, pattern: str | None) -> list[dict[str, Any]]:

    return [
        {"target": target, "scheme": found.scheme, **found.specs.get(name, {})}
        for name in found.names or ()
        if matches(target := f"{found.scheme}:{name}", pattern)
    ]


def _others(libraries: list[Findings]) -> dict[str, Any]:
    """Returns the libraries that are missing, broken or silent, as plain data."""
    return {
        "missing": [
            {
                "scheme": found.scheme,
                "package": found.package,
                "install": _command(found),
                "reason": found.missing,
            }
            for found in libraries
            if found.missing
        ],
        "broken": [
            {"scheme": found.scheme, "reason": found.broken}
            for found in libraries
            if found.broken
        ],
        "unlisted": [found.scheme for found in libraries if _is_unlisted(found)],
    }


def _is_unlisted(found: Findings) -> bool:
    return found.names is None and not found.missing and not found.broken


def _command(found: Findings) -> str | None:
    """Returns the pip command for what is missing, if that is all it takes."""
    command = install_command(found.extra, package=found.package)
    return command if found.missing.endswith(f"is not installed. {command}") else None


def _show_overview(own: list[dict[str, Any]], libraries: list[Findings]) -> None:
    table = _grid("library", "", "environments, such as")
    table.columns[1].justify = "right"
    for found in libraries:
        if found.names:
            first = ", ".join(found.names[:_SHOWN])
            more = ", …" if len(found.names) > _SHOWN else ""
            count = str(len(found.names))
            table.add_row(Text(found.scheme), count, Text(first + more))
    parts: list[Any] = [_table(own, "built in")]
    if table.row_count:
        parts += ["", table]
    hint = "'envkit list gymnasium:' lists a library's, 'envkit list pole' finds."
    print_trimmed(terminal(), *parts, *_remarks(libraries), "", hint)


def _show_matches(
    rows: list[dict[str, Any]], libraries: list[Findings], pattern: str | None
) -> None:
    near = "" if rows else _near(libraries, pattern)
    found = _table(rows, "environment") if rows else Text(f"Nothing matches.{near}")
    # Of one library, the reason why it has nothing is the answer; of many it is enough
    # to know which were not asked.
    if len(libraries) == 1 or pattern is None:
        print_trimmed(terminal(), found, *_remarks(libraries))
        return
    remarks = _remarks([library for library in libraries if library.broken])
    missing = [library.scheme for library in libraries if library.missing]
    if missing:
        names = ", ".join(missing)
        remarks += ["", Text(f"not installed: {names} ('envkit list' says more)")]
    print_trimmed(terminal(), found, *remarks)


def _near(libraries: list[Findings], pattern: str | None) -> str:
    known = [name for found in libraries for name in found.names or ()]
    return suggestion((pattern or "").rpartition(":")[2], [*registered(), *known])


def _remarks(libraries: list[Findings]) -> list[Any]:
    """Returns tables of the libraries that are missing, broken or silent."""
    groups = {
        "not installed": {
            found.scheme: _command(found) or found.missing
            for found in libraries
            if found.missing
        },
        "broken": {found.scheme: found.broken for found in libraries if found.broken},
        "not listed": {
            found.scheme: _why_unlisted(found.scheme)
            for found in libraries
            if _is_unlisted(found)
        },
    }
    parts: list[Any] = []
    for title, lines in groups.items():
        if lines:
            table = _grid(title, "")
            for scheme, text in lines.items():
                table.add_row(Text(scheme), Text(text))
            parts += ["", table]
    return parts


def _why_unlisted(scheme: str) -> str:
    address = registry.address_in(scheme)
    if address:
        return f"make takes the address of a server: {scheme}:{address}"
    return "make takes what its package knows, which it does not tell"


def _table(rows: list[dict[str, Any]], title: str) -> Table:
    if not any("observation" in row or "error" in row for row in rows):
        table = _grid(title)
        for row in rows:
            table.add_row(Text(row["target"]))
        return table
    table = _grid(title, *_PARTS)
    for row in rows:
        if "error" in row:
            error = Text(row["error"], style="red")
            table.add_row(Text(row["target"]), error, "")
        else:
            parts = [row.get(part, {}).get("text", "") for part in _PARTS]
            table.add_row(Text(row["target"]), *map(Text, parts))
    return table


def _grid(first: str, *others: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold", pad_edge=False)
    table.add_column(first, no_wrap=True, overflow="fold")
    for title in others:
        table.add_column(title, overflow="fold")
    return table


_WILD = frozenset("*?[")


def matches(target: str, pattern: str | None) -> bool:
    """True if a pattern matches a target, in upper or lower case.

    With `*`, `?` or `[` in it, it is a glob of the whole target, or of what follows the
    colon; otherwise a part of the target, or with a colon of what follows it.

    Example:
        >>> matches("gymnasium:CartPole-v1", "pole")
        True
        >>> matches("gymnasium:CartPole-v1", "gymnasium:pole")
        True
        >>> matches("gymnasium:CartPole-v1", "cart*"), matches("Catch-v1", "*cart*")
        (True, False)
    """
    if pattern is None:
        return True
    wanted, whole = pattern.lower(), target.lower()
    if _WILD.isdisjoint(wanted):
        scheme, colon, name = wanted.partition(":")
        its_scheme, _, its_name = whole.partition(":")
        by_parts = bool(colon) and its_scheme.endswith(scheme) and name in its_name
        return by_parts or wanted in whole
    return fnmatchcase(whole, wanted) or fnmatchcase(whole.partition(":")[2], wanted)


def schemes_for(pattern: str | None, schemes: Iterable[str]) -> list[str]:
    """Returns the schemes of which a pattern may mean environments.

    Example:
        >>> schemes_for("gymnasium:*pole*", ["ale", "gym", "gymnasium"])
        ['gymnasium']
        >>> schemes_for("gym", ["ale", "gym", "gymnasium"])
        ['ale', 'gym', 'gymnasium']
    """
    before, colon, _ = (pattern or "").lower().partition(":")
    if not colon:
        return list(schemes)
    if _WILD.isdisjoint(pattern or ""):
        return [scheme for scheme in schemes if scheme.lower().endswith(before)]
    return [scheme for scheme in schemes if fnmatchcase(scheme.lower(), before)]


# The most matches whose specs are shown unless those of all are asked for.
FEW = 10

# The seconds after which a library that has not answered is given up.
_PATIENCE = 60.0
# The path first, because only this process knows where envkit and the library are.
_CODE = (
    "import json, sys; request = json.loads(sys.argv[1]); "
    "sys.path[:] = request['path']; "
    "from envkit.cli.list_command import look; look(request)"
)


@dataclass
class Findings:
    """The answer of a library about its environments.

    Attributes:
        scheme: The name before the colon.
        names: The names after the colon; `None` if these are not known.
        missing: The error that says what is not installed.
        package: The package that is not.
        extra: The extra of envkit that installs it.
        broken: The reason why the library could not answer.
        specs: For each name of which they were asked for: the specs, or an error.
    """

    scheme: str
    names: list[str] | None = None
    missing: str = ""
    package: str = ""
    extra: str = ""
    broken: str = ""
    specs: dict[str, dict[str, Any]] = field(default_factory=dict)


# What shows how far a survey is.
_Watch = Callable[
    [Sequence[str]], contextlib.AbstractContextManager[Callable[[str], None]]
]


def survey(
    schemes: Sequence[str],
    pattern: str | None,
    *,
    specs: bool = False,
    debug: bool = False,
    watch: _Watch = lambda schemes: contextlib.nullcontext(lambda scheme: None),
) -> list[Findings]:
    """Asks all, some at a time; returns what they say, in the order of the schemes.

    A library that is not installed is not asked, nor one that has addresses in place of
    names. Where several are asked, environments are made only if few names match in all
    of them, by another process of each library that has some.

    Args:
        schemes: The libraries to ask.
        pattern: The environments that are made for their specs, if they are few.
        specs: Whether all of those are made.
        debug: Whether what libraries print is to be seen on standard error.
        watch: Called with the schemes that are asked, if any are. In its context is
            what is called with each of them that has answered.
    """
    known = {scheme: _known_of(scheme) for scheme in schemes}
    found = {scheme: facts for scheme, facts in known.items() if facts is not None}
    installed = [scheme for scheme in schemes if scheme not in found]
    few = None if specs else FEW if pattern is not None and len(schemes) == 1 else 0
    if installed:
        with watch(installed) as answered:
            found.update(_asked(installed, _Looks(pattern, few, debug), answered))
    if few == 0 and pattern is not None:
        counts = {scheme: _matches(found[scheme], pattern) for scheme in installed}
        if 0 < sum(counts.values()) <= FEW:
            some = [scheme for scheme in installed if counts[scheme]]
            found.update(_asked(some, _Looks(pattern, FEW, debug)))
    return [found[scheme] for scheme in schemes]


def _known_of(scheme: str) -> Findings | None:
    """Returns what is known of a scheme without asking it; `None` if it is to be asked.

    A process for each scheme that is asked takes as long as all else.
    """
    if (error := registry.missing_for(scheme)) is not None:
        return Findings(
            scheme, missing=str(error), package=error.package, extra=error.extra
        )
    return Findings(scheme) if registry.address_in(scheme) else None


def _asked(
    schemes: Sequence[str],
    looks: _Looks,
    on_answer: Callable[[str], None] = lambda scheme: None,
) -> dict[str, Findings]:
    with ThreadPoolExecutor(max_workers=max(1, os.cpu_count() or 1)) as threads:
        try:
            asked = {threads.submit(looks.at, scheme): scheme for scheme in schemes}
            for done in as_completed(asked):
                on_answer(asked[done])
        except BaseException:
            looks.stop()
            raise
    return {scheme: done.result() for done, scheme in asked.items()}


def _matches(found: Findings, pattern: str) -> int:
    names = found.names or ()
    return sum(matches(f"{found.scheme}:{name}", pattern) for name in names)


class _Looks:
    """The processes that run `look`."""

    def __init__(self, pattern: str | None, few: int | None, debug: bool) -> None:
        self._request = {"pattern": pattern, "few": few, "debug": debug}
        self._debug = debug
        self._patience = None if few is None else _PATIENCE
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._stopped = False

    def at(self, scheme: str) -> Findings:
        request = {**self._request, "scheme": scheme, "path": sys.path}
        with self._lock:
            if self._stopped:
                return Findings(scheme)
            process = subprocess.Popen(
                [sys.executable, "-c", _CODE, json.dumps(request)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=None if self._debug else subprocess.DEVNULL,
            )
            self._running.add(process)
        late = False
        try:
            said, _ = process.communicate(timeout=self._patience)
        except subprocess.TimeoutExpired:
            late = True
            process.kill()
            said, _ = process.communicate()
        finally:
            with self._lock:
                self._running.discard(process)
        end = _end_of(process.returncode, late)
        return _findings(scheme, said.decode("utf-8", "replace").splitlines(), end)

    def stop(self) -> None:
        """Ends all of them, and starts no more."""
        with self._lock:
            self._stopped = True
            for process in self._running:
                process.kill()


def _end_of(returncode: int, late: bool) -> str:
    """Returns how a process ended too early, in words; empty if it did not."""
    if late:
        return f"it took more than {_PATIENCE:g} seconds"
    if returncode < 0:
        with contextlib.suppress(ValueError):
            return f"its process was ended by {signal.Signals(-returncode).name}"
    return f"its process ended with status {returncode}" if returncode else ""


def _findings(scheme: str, lines: list[str], end: str) -> Findings:
    found = Findings(scheme)
    for line in lines:
        try:
            facts = json.loads(line)
        except ValueError:  # The last one of a process that was killed.
            continue
        if "name" in facts:
            found.specs[facts.pop("name")] = facts
        else:
            for name, value in facts.items():
                setattr(found, name, value)
    if end and found.names is None:
        found.broken = f"{end} (--debug shows what it printed)"
    elif end:
        found.broken = f"{end} when its environments were made"
    return found


def look(request: dict[str, Any]) -> None:
    """Writes the environments of a scheme, and the specs of some, as lines of JSON.

    It runs in a process of its own, because a library may print, crash and take its
    time when it is imported. The answers go where standard output was.

    Args:
        request: The `scheme`, the `pattern`, how many matches there may be for their
            specs to be shown, `None` for any number: `few`, and whether what the
            library prints is to be seen: `debug`.
    """
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    _quiet(request["debug"])

    def answer(**facts: Any) -> None:
        print(json.dumps(facts), file=answers, flush=True)

    scheme, pattern = request["scheme"], request["pattern"]
    try:
        names = registry.names_in(scheme)
    except MissingDependencyError as error:
        answer(missing=str(error), package=error.package, extra=error.extra)
        return
    except Exception as error:  # Importing it runs code that may do anything.
        answer(broken=in_short(error))
        return
    answer(names=names)
    found = [name for name in names or () if matches(f"{scheme}:{name}", pattern)]
    if request["few"] is None or len(found) <= request["few"]:
        for name in found:
            answer(name=name, **specs_of(f"{scheme}:{name}"))


def specs_of(target: str) -> dict[str, Any]:
    """Makes an environment, and returns its specs, or why that cannot be done."""
    try:
        env = make(target)
        try:
            specs = {"observation": env.observation_spec(), "action": env.action_spec()}
            return {
                part: {"text": short_text(spec), "leaves": plain_leaves(spec)}
                for part, spec in specs.items()
            }
        finally:
            env.close()
    except Exception as error:  # Its code may raise anything.
        return {"error": in_short(error)}


def in_short(error: Exception) -> str:
    """Writes an error in one line of moderate length."""
    message = " ".join(str(error).split())
    return f"{type(error).__name__}: {message}"[:300].rstrip(": ")


def _quiet(debug: bool) -> None:
    """Sends what is printed, also by native code, nowhere or to standard error."""
    if debug:
        os.dup2(2, 1)
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
