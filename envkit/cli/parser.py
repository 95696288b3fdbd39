"""Parsers of commands: uniform defaults, and mistakes reported in one line."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from envkit.cli.output import say
from envkit.extend import suggestion

__all__ = ["Parser", "Removed", "Renamed"]


class _Help(argparse.RawDescriptionHelpFormatter):
    """Appends the default to an option's help, unless the text states it."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        default, text = action.default, action.help or ""
        is_value = isinstance(default, int | float | str) and default is not False
        if not is_value or default == argparse.SUPPRESS or "(default: " in text:
            return text
        shown = f"{default:g}" if isinstance(default, float) else default
        return f"{text} (default: {shown})"


class Parser(argparse.ArgumentParser):
    """Reports mistakes in one line, and suggests the option that was meant.

    Attributes:
        flags_without_value: The message for a value given to a flag that used to take
            one.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(formatter_class=_Help, **options)
        self.flags_without_value: dict[str, str] = {}

    def prefix_help(self, prefixes: Mapping[str, str]) -> None:
        """Puts words before the help of some options, by the names of their values."""
        for action in self._actions:
            if action.dest in prefixes and action.help != argparse.SUPPRESS:
                action.help = f"{prefixes[action.dest]}{action.help}"

    def parse_args(  # type: ignore[override]  # as it is called here
        self, args: Sequence[str], namespace: None = None
    ) -> argparse.Namespace:
        """Reads all arguments."""
        options = self._option_string_actions
        for word, following in zip(args, [*args, None][1:], strict=True):
            flag, equals, _ = word.partition("=")
            has_number = following is not None and following.isdecimal()
            if flag in self.flags_without_value and (equals or has_number):
                self.error(self.flags_without_value[flag])
            option = options.get(word)
            lacks_value = following is None or following in options
            if option is not None and option.nargs is None and lacks_value:
                value = option.metavar or option.dest.upper()
                self.error(f"{word} needs a value: write {word} {value}.")
        parsed, unknown = self.parse_known_args(args)
        if unknown:
            self.error(self._unknown(unknown[0]))
        return parsed

    def error(self, message: str) -> NoReturn:
        """Prints the mistake and exits with status 2."""
        said = message if message.endswith((".", "?")) else f"{message}."
        say(f"{self.prog}: {said} ({self.prog} --help)", file=sys.stderr)
        self.exit(2)

    def _unknown(self, word: str) -> str:
        if not word.startswith("-"):
            takes_output = "-o" in self._option_string_actions
            hint = f" Did you mean -o {word}?" if takes_output else ""
            return f"There is one argument too many: {word!r}.{hint}"
        option = word.partition("=")[0]
        known = [
            name
            for action in self._actions
            if action.help != argparse.SUPPRESS
            for name in action.option_strings
        ]
        return f"There is no option {option}.{suggestion(option, known)}"


class Renamed(argparse.Action):
    """Refuses an option's old name and names the new one, its `const`."""

    def __init__(self, **options: Any) -> None:
        super().__init__(nargs="?", help=argparse.SUPPRESS, **options)

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> NoReturn:
        """Prints the message and exits."""
        parser.error(f"{self.option_strings[0]} has been renamed: write {self.const}.")


class Removed(Renamed):
    """Refuses a removed option; its `const` says what to do instead."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> NoReturn:
        """Prints the message and exits."""
        parser.error(f"{self.option_strings[0]} has been removed: {self.const}.")
