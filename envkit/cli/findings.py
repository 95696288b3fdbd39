"""A library's answer about its environments, and the matches of a pattern."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from envkit.cli.output import error_text
from envkit.registry import make

__all__ = ["Findings", "matches", "schemes_for", "specs_of"]


@dataclass
class Findings:
    """Holds a library's answer about its environments.

    Attributes:
        scheme: The name before the colon.
        names: The names after the colon; `None` if unknown.
        missing: The error that says what is not installed.
        package: The missing package.
        command: The pip command that installs it, if that is enough.
        takes: What may follow the colon instead of names.
        broken: The reason why the library could not answer.
        specs: The specs, or an error, for each name that they were requested for.
    """

    scheme: str
    names: list[str] | None = None
    missing: str = ""
    package: str = ""
    command: str = ""
    takes: str = ""
    broken: str = ""
    specs: dict[str, dict[str, Any]] = field(default_factory=dict)


_WILD = frozenset("*?[")


def matches(target: str, pattern: str | None) -> bool:
    """Returns True if a pattern matches a target, ignoring case.

    With `*`, `?` or `[` in it, the pattern is a glob for the whole target or for the
    part after the colon; otherwise it is a part of the target or, with a colon, of what
    follows it.

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
    """Returns the schemes that may have environments matching a pattern.

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


def specs_of(target: str) -> dict[str, Any]:
    """Makes an environment; returns its specs, or the reason why it cannot be made."""
    from envkit.cli.describe import plain_leaves, short_text  # which loads NumPy

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
    except (Exception, SystemExit) as error:  # its code may raise anything
        return {"error": error_text(error)}
