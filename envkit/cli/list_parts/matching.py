"""Which targets a pattern means, and which libraries may have some of them."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase

__all__ = ["matches", "schemes_for"]

_WILD = frozenset("*?[")


def matches(target: str, pattern: str | None) -> bool:
    """Says whether a pattern means a target, in upper or lower case.

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
