"""`envkit COMMAND`: finds the command, and returns its exit status.

Commands are entry points of the group `envkit.commands`; `Command` says what they are.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import Any

from envkit.cli.output import say
from envkit.cli.plugins import Command
from envkit.errors import EnvkitError
from envkit.extend import Plugins

# The second one comes when a terminal is closed.
_TO_END = ("SIGTERM", "SIGHUP")


class Terminated(SystemExit):
    """The program was told to end, which no code of an environment does."""


@contextlib.contextmanager
def ended_by_signals() -> Iterator[None]:
    """Lets signals end the program as `sys.exit` would, while the block runs."""
    # Because only the main thread may set handlers of signals.
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    known = [getattr(signal, name) for name in _TO_END if hasattr(signal, name)]
    # Signals that nohup and others ignore stay ignored.
    before = {
        number: signal.signal(number, _exit)
        for number in known
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _exit(number: int, _: Any) -> None:
    raise Terminated(128 + number)


__all__ = ["Terminated", "ended_by_signals", "main"]

_COULD_NOT, _INTERRUPTED = 2, 130
# Errors whose message is complete without the name of their class.
_TELLING = (EnvkitError, ValueError, OSError, NotImplementedError)
_TRACEBACK = "Traceback (most recent call last):"


_COMMANDS = Plugins("envkit.commands", "command")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command.

    Args:
        arguments: The command and what follows it; `None` for those of the process.

    Returns:
        The exit status.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    _prepare_stdout()
    try:  # Ctrl-C may come as early as this: imports take a while.
        parser = _parser(given)
        parsed = parser.parse_args(given)
        if parsed.command is None:
            parser.print_help()
            return 0
        command = parsed.command_module
    except KeyboardInterrupt:
        return _INTERRUPTED
    except EnvkitError as error:  # The command's package is broken.
        say(f"envkit: {_in_one_line(error)}", file=sys.stderr)
        return _COULD_NOT
    # As with `python -m`, so that one's own modules are found however this was called.
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        status: int = _run(command, parsed)
        sys.stdout.flush()
        return status
    except BrokenPipeError:
        # The reader of the pipe has ended. Python would complain when it exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _COULD_NOT
    except KeyboardInterrupt:
        return _INTERRUPTED
    except Exception as error:
        if parsed.debug:
            sys.excepthook = _show_traceback
            raise
        say(f"envkit {parsed.command}: {_in_one_line(error)}", file=sys.stderr)
        return _COULD_NOT


def _run(command: Any, parsed: argparse.Namespace) -> int:
    """Runs a command; other people's code does not choose the exit status."""
    try:
        with ended_by_signals():
            status: int = command.run(parsed)
        return status
    except Terminated:
        raise
    except SystemExit as ended:
        code = "" if ended.code is None else repr(ended.code)
        raise EnvkitError(
            f"The environment or policy called sys.exit({code}) (--debug shows where)."
        ) from ended


def _prepare_stdout() -> None:
    """Makes standard output accept any text."""
    if sys.stdout is None:
        # It was closed. Otherwise the next file that is opened would be it.
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    elif isinstance(sys.stdout, io.TextIOWrapper):
        # Not every encoding has ∞, and a file's name may be no text. That of the locale
        # "C" takes such names, but no ∞ either.
        kind, errors = sys.stdout.encoding.lower(), sys.stdout.errors
        if errors == "strict" or (errors == "surrogateescape" and kind != "utf-8"):
            sys.stdout.reconfigure(errors="replace")


def _parser(given: Sequence[str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="envkit", description="Environments for reinforcement learning."
    )
    parser.add_argument("--version", action=_ShowVersion)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    asked = next((word for word in given if not word.startswith("-")), None)
    own = _COMMANDS.own()
    # Other packages are not searched for a command of envkit.
    for name in own if asked in own else sorted({*own, *_COMMANDS.names()}):
        # Only the command that is asked for is imported, for its arguments.
        if name != asked:
            commands.add_parser(name, help=_text_of(name).replace("%", "%%"))
            continue
        found = _command(name)
        module: Any = found.module
        if isinstance(module, str):
            module = importlib.import_module(module)
        command = commands.add_parser(
            name,
            help=found.text,
            description=f"{found.text[0].upper()}{found.text[1:]}.",
            epilog=f"example:\n  {module.EXAMPLE}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.add_arguments(command)
        command.add_argument(
            "--debug", action="store_true", help="show the traceback of an error"
        )
        command.set_defaults(command_module=module)
    return parser


def _text_of(name: str) -> str:
    """Returns what a command does; of a broken one, why it cannot be loaded."""
    try:
        return _command(name).text
    except EnvkitError as error:
        return str(error)


def _command(name: str) -> Command:
    plugin = _COMMANDS.find(name)
    assert plugin is not None  # its name is one of those that were found
    found = plugin.load()
    if isinstance(found, Command):
        return found
    if not all(hasattr(found, part) for part in ("EXAMPLE", "add_arguments", "run")):
        raise plugin.broken(
            "is neither a Command nor a module with EXAMPLE, add_arguments and run"
        )
    text = (found.__doc__ or name).strip().partition("\n")[0].rstrip(".")
    return Command(found, text)


def _in_one_line(error: Exception) -> str:
    message = " ".join(str(error).split())
    if _TRACEBACK in message:  # What a worker process has told
        first_line = str(error).partition("\n")[0]
        message = f"{first_line} (--debug shows where)"
    if isinstance(error, _TELLING) and message:
        return message
    kind = type(error).__name__
    return f"{kind}: {message} (--debug shows where)" if message else kind


def _show_traceback(*raised: Any) -> None:
    import traceback

    text = "".join(traceback.format_exception(*raised))
    say(*text.rstrip("\n").split("\n"), file=sys.stderr)


class _ShowVersion(argparse.Action):
    """Looks the version up when it is asked for: that loads NumPy."""

    def __init__(self, option_strings: Sequence[str], dest: str) -> None:
        text = "show program's version number and exit"
        super().__init__(option_strings, argparse.SUPPRESS, nargs=0, help=text)

    def __call__(self, parser: argparse.ArgumentParser, *unused: Any) -> None:
        from envkit.provenance import envkit_version

        say(f"envkit {envkit_version()}")
        parser.exit()
