"""What commands write to: tables for people, JSON for scripts, progress for neither."""

from __future__ import annotations

import argparse
import json
import math
import sys
from typing import Any

from rich.console import Console
from rich.progress import Progress

__all__ = ["add_json", "print_json", "progress_bar", "terminal"]


def add_json(parser: argparse.ArgumentParser) -> None:
    """Lets a command answer in JSON."""
    parser.add_argument(
        "--json", action="store_true", help="answer in JSON, for other programs"
    )


def print_json(answer: Any) -> None:
    """Prints an answer as JSON, which has no nan and no infinity: they become null."""
    plain = _finite(answer)
    # Elsewhere than in UTF-8 escapes say what the encoding lacks.
    escaped = (sys.stdout.encoding or "").lower().replace("-", "") != "utf8"
    print(json.dumps(plain, indent=2, allow_nan=False, ensure_ascii=escaped))


def _finite(answer: Any) -> Any:
    if isinstance(answer, float):
        return answer if math.isfinite(answer) else None
    if isinstance(answer, dict):
        return {name: _finite(item) for name, item in answer.items()}
    if isinstance(answer, (list, tuple)):
        return [_finite(item) for item in answer]
    return answer


def terminal() -> Console:
    """Returns where tables go.

    What is no terminal has no width, and gets lines as long as they are.
    """
    console = Console(file=sys.stdout, highlight=False, soft_wrap=False)
    return (
        console
        if console.is_terminal
        else Console(file=sys.stdout, highlight=False, width=200)
    )


def progress_bar(*columns: Any) -> Progress:
    """Returns a progress bar beside the output, or a silent one without a terminal."""
    console = Console(file=sys.stderr)
    return Progress(
        *(columns or Progress.get_default_columns()),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
