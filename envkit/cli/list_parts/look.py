"""What `envkit list` does in a process of its own for each library.

A library may print, crash and take its time when it is imported; nobody else notices.
The answers go, one line of JSON each, where standard output was.
"""

from __future__ import annotations

import json
import os
from typing import Any

from envkit import targets
from envkit.cli.describe_parts.spec_texts import plain_leaves, short_text
from envkit.cli.list_parts.matching import matches
from envkit.constructors import make
from envkit.errors import MissingDependencyError

__all__ = ["in_short", "look", "specs_of"]


def look(request: dict[str, Any]) -> None:
    """Answers which environments a scheme has, and what the specs of some are.

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
        names = targets.names_in(scheme)
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
    except Exception as error:  # It is somebody else's environment.
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
