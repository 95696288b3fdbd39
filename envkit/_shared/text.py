"""Text that came from elsewhere, made fit for a terminal."""

from __future__ import annotations

import re

__all__ = ["escaped", "exit_call"]

# What a terminal obeys, or what changes the order in which text is read: all control
# characters but tab and newline, bytes that stand for some, and marks of Unicode's.
_CONTROLS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\udc80-\udc9f\u061c\u200b\u200e\u200f\u2028-\u202e"
    "\u2060-\u2069\ufeff]"
)


def escaped(text: str) -> str:
    r"""Returns text with its control characters written out, as JSON writes them.

    Whatever another program has sent goes through this before it becomes a message or
    a line of a log: terminals obey control characters.

    Example:
        >>> print(escaped("\x1b[2JCatch"))
        \u001b[2JCatch
    """
    return _CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def exit_call(ended: SystemExit) -> str:
    """Returns the call that raised it.

    Example:
        >>> exit_call(SystemExit(1)), exit_call(SystemExit())
        ('sys.exit(1)', 'sys.exit()')
    """
    return f"sys.exit({'' if ended.code is None else repr(ended.code)})"
