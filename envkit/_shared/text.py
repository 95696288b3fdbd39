"""Makes other programs' text safe for a terminal."""

from __future__ import annotations

import re

__all__ = ["escaped", "exit_call"]

# Characters that a terminal obeys, or that change the reading order: all control
# characters except tab and newline, bytes that stand for some, and Unicode marks.
_CONTROLS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\udc80-\udc9f\u061c\u200b\u200e\u200f\u2028-\u202e"
    "\u2060-\u2069\ufeff]"
)


def escaped(text: str) -> str:
    r"""Returns text with its control characters escaped as in JSON.

    Text from another program goes through this before it becomes a message or a log
    line, because terminals obey control characters.

    Example:
        >>> print(escaped("\x1b[2JCatch"))
        \u001b[2JCatch
    """
    return _CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def exit_call(ended: SystemExit) -> str:
    """Returns the call that raised a `SystemExit`.

    Example:
        >>> exit_call(SystemExit(1)), exit_call(SystemExit())
        ('sys.exit(1)', 'sys.exit()')
    """
    return f"sys.exit({'' if ended.code is None else repr(ended.code)})"
