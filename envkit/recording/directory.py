"""The directory of a recording: whose it is, and what lies in it from the first."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

__all__ = ["begin_directory"]


def begin_directory(
    path: Path, facts: dict[str, Any], provenance: dict[str, Any]
) -> None:
    """Makes the directory of a recording that nobody else writes to.

    Raises:
        FileExistsError: There is a recording already, or one that has been begun.
    """
    path.mkdir(parents=True, exist_ok=True)
    log = path / "log.jsonl"
    try:
        if (path / "recording.json").exists():
            raise FileExistsError
        # Of several that begin at the same time only one can make this file.
        log.open("x").close()
    except FileExistsError:
        raise FileExistsError(
            f"There is a recording in {str(path)!r} already, and none is ever "
            "overwritten. Choose another directory, or remove it."
        ) from None
    try:
        _write(path / "provenance.json", provenance)
        _write(path / "recording.json", facts)
    except BaseException:
        log.unlink()
        raise


def _write(path: Path, data: Any) -> None:
    """Writes a file that is there as a whole, or not at all."""
    unfinished = path.with_suffix(".part")
    unfinished.write_text(json.dumps(data, indent=2, allow_nan=False) + "\n", "utf-8")
    os.replace(unfinished, path)
