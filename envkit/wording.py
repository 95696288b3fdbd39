"""The small words in messages: articles, counts and lists of names."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["a_or_an", "counted", "listed"]


def a_or_an(noun: str) -> str:
    """Puts the article before a noun.

    Example:
        >>> a_or_an("list"), a_or_an("array")
        ('a list', 'an array')
    """
    return f"{'an' if noun[:1].lower() in 'aeiou' else 'a'} {noun}"


def counted(count: int, noun: str, plural: str = "") -> str:
    """Puts a number before a noun.

    Example:
        >>> counted(1, "seed"), counted(2, "seed"), counted(3, "leaf", "leaves")
        ('1 seed', '2 seeds', '3 leaves')
    """
    return f"{count} {noun}" if count == 1 else f"{count} {plural or f'{noun}s'}"


def listed(names: Iterable[object], most: int = 8) -> str:
    """Lists names with commas, and counts those after the first few.

    Example:
        >>> listed([1, 2]), listed(range(10), most=3)
        ('1, 2', '0, 1, 2 and 7 more')
    """
    texts = [str(name) for name in names]
    shown = ", ".join(texts[:most])
    return shown if len(texts) <= most else f"{shown} and {len(texts) - most} more"
