"""`envkit COMMAND`: finds and runs the command, and returns its exit status.

Commands are entry points of the group `envkit.commands`, described in `Command`.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import re
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import Any

from envkit._shared.quiet_sdl import prepare_sdl
from envkit._shared.text import exit_call
from envkit.cli.output import error_text, say
from envkit.cli.parser import Parser
from envkit.cli.plugins import Command
from envkit.errors import EnvkitError
from envkit.extend import Plugins, suggestion

# The second one is sent when a terminal is closed.
_TO_END = ("SIGTERM", "SIGHUP")


class Terminated(KeyboardInterrupt):
    """A signal told the program to end, as Ctrl-C does.

    It is not a `SystemExit`, because an environment may raise that.

    Attributes:
        code: The exit status.
    """

    def __init__(self, number: int) -> None:
        super().__init__()
        self.code = 128 + number


@contextlib.contextmanager
def ended_by_signals() -> Iterator[None]:
    """Makes signals raise `Terminated` while the block runs."""
    # Only the main thread may set signal handlers.
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
    raise Terminated(number)


__all__ = ["Terminated", "command_parser", "ended_by_signals", "main"]

_COULD_NOT, _INTERRUPTED = 2, 130
# Errors whose message is complete without the name of their class.
_COMPLETE = (EnvkitError, ValueError, OSError, NotImplementedError)
_TRACEBACK = "Traceback (most recent call last):"
# The two lines that show why a value does not fit.
_TWO_ROWS = re.compile(r"\s+^  expected +(.+)\n  got +(.+)$\s*", re.MULTILINE)


_COMMANDS = Plugins("envkit.commands", "command")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command.

    Args:
        arguments: The command and its arguments; `None` for the process's.

    Returns:
        The exit status.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    _prepare_stdout()
    try:  # Ctrl-C may come this early: imports take a while
        if not given or given[0].startswith("-"):
            return _show_help(given)
        name = given[0]
        parsed = command_parser(name).parse_args(given[1:])
    except KeyboardInterrupt:
        return _INTERRUPTED
    except EnvkitError as error:  # the command is unknown, or its package is broken
        say(f"envkit: {_in_one_line(error)}", file=sys.stderr)
        return _COULD_NOT
    # As with `python -m`, so that the user's own modules are always found.
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    # Environments may import pygame: in this process, and in those of workers.
    prepare_sdl()
    try:
        status = _run(parsed)
        sys.stdout.flush()
        return status
    except Terminated as ended:
        return ended.code
    except BrokenPipeError:
        # The reader of the pipe has ended; Python would complain on exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _COULD_NOT
    except KeyboardInterrupt:
        return _INTERRUPTED
    except Exception as error:
        if parsed.debug:
            sys.excepthook = _show_traceback
            raise
        say(
            f"envkit {name}: {_as_options(_in_one_line(error), parsed)}",
            file=sys.stderr,
        )
        return _COULD_NOT


def _run(parsed: argparse.Namespace) -> int:
    """Runs a command; code it calls cannot choose the exit status."""
    try:
        with ended_by_signals():
            status: int = parsed.run_command(parsed)
        return status
    except SystemExit as ended:
        raise EnvkitError(
            f"The environment or policy called {exit_call(ended)} (--debug shows "
            "where)."
        ) from ended


def _prepare_stdout() -> None:
    """Makes standard output accept any text."""
    if sys.stdout is None:
        # It was closed; otherwise the next opened file would take its place.
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    elif isinstance(sys.stdout, io.TextIOWrapper):
        # Not every encoding has ∞, and a file's name may not be valid text. The locale
        # "C" accepts such names, but no ∞.
        kind, errors = sys.stdout.encoding.lower(), sys.stdout.errors
        if errors == "strict" or (errors == "surrogateescape" and kind != "utf-8"):
            sys.stdout.reconfigure(errors="replace")


def _show_help(given: Sequence[str]) -> int:
    """Prints the list of commands, or the version."""
    about = "Environments for reinforcement learning."
    parser = Parser(prog="envkit", description=about)
    parser.add_argument("--version", action="store_true", help="show envkit's version")
    commands = parser.add_subparsers(metavar="COMMAND")
    for name in _COMMANDS.names():
        commands.add_parser(name, help=_text_of(name).replace("%", "%%"))
    if parser.parse_args(given).version:
        from envkit.provenance import envkit_version  # loads NumPy

        say(f"envkit {envkit_version()}")
    else:
        parser.print_help()
    return 0


def _text_of(name: str) -> str:
    """Returns a command's description; for a broken one, the reason."""
    try:
        return _command(_plugin(name)).text
    except EnvkitError as error:
        return str(error)


def command_parser(name: str) -> Parser:
    """Returns the parser of a command.

    Raises:
        EnvkitError: The command is unknown, or its package is broken.
    """
    plugin = _plugin(name)
    module, text = _command(plugin)
    if isinstance(module, str):
        module = plugin._replace(value=module).load()
    if not all(hasattr(module, part) for part in ("EXAMPLE", "add_arguments", "run")):
        raise plugin.broken(
            "is neither a Command nor a module with EXAMPLE, add_arguments and run"
        )
    parser = Parser(
        prog=f"envkit {name}",
        description=f"{text[:1].upper()}{text[1:]}.",
        epilog=f"example:\n  {module.EXAMPLE}",
    )
    try:
        module.add_arguments(parser)
        parser.add_argument(
            "--debug", action="store_true", help="show tracebacks of errors"
        )
    except Exception as error:
        if not plugin.package:
            raise
        why = f"has arguments that cannot be added: {error_text(error)}"
        raise plugin.broken(why) from error
    parser.set_defaults(run_command=module.run)
    return parser


def _plugin(name: str) -> Any:
    """Returns a command's description, or the error if it is broken."""
    plugin = _COMMANDS.find(name)
    if plugin is None:
        known = _COMMANDS.names()
        raise EnvkitError(
            f"There is no command {name!r}.{suggestion(name, known)} The commands are "
            f"{', '.join(known)}."
        )
    return plugin


def _command(plugin: Any) -> Command:
    """Loads an entry point, which names a command or its module."""
    found = plugin.load()
    if isinstance(found, Command):
        return found
    text = (found.__doc__ or plugin.name).strip().partition("\n")[0].rstrip(".")
    return Command(found, text)


def _in_one_line(error: Exception) -> str:
    text = _TWO_ROWS.sub(r" Expected \1, got \2. ", str(error))
    message = " ".join(text.split())
    if _TRACEBACK in message:  # from a worker process
        first_line = str(error).partition("\n")[0]
        message = f"{first_line} (--debug shows where)"
    if isinstance(error, _COMPLETE) and message:
        return re.sub(r"^\[Errno -?\d+\] ", "", message)
    kind = type(error).__name__
    return f"{kind}: {message} (--debug shows where)" if message else kind


def _as_options(message: str, parsed: argparse.Namespace) -> str:
    """Rewrites arguments that a message recommends as the command's options."""
    for name, value in vars(parsed).items():
        if value is False:
            message = message.replace(f"{name}=True", f"--{name}")
    if "target_arguments" in parsed:
        message = message.replace(" download=True", " --arg download=True")
    return message


def _show_traceback(*raised: Any) -> None:
    import traceback

    text = "".join(traceback.format_exception(*raised))
    say(*text.rstrip("\n").split("\n"), file=sys.stderr)
