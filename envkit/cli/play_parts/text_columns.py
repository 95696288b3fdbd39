"""Long texts beside one another instead of below the edge."""

from __future__ import annotations

__all__ = ["columns_of", "side_by_side"]

_GAP = "    "


def columns_of(text: str, height: int) -> list[list[str]]:
    r"""Returns the lines of a text in columns of so many lines.

    Example:
        >>> columns_of("a\nb\nc", 2)
        [['a', 'b'], ['c']]
    """
    lines = text.splitlines() or [""]
    height = max(1, height)
    return [lines[start : start + height] for start in range(0, len(lines), height)]


def side_by_side(text: str, height: int) -> str:
    r"""Returns a text in columns of so many lines, as text.

    Example:
        >>> print(side_by_side("left\na\nright", 2))
        left    right
        a
    """
    columns = columns_of(text, height)
    widths = [max(map(len, column)) for column in columns]
    rows = []
    for number in range(len(columns[0])):
        cells = [
            (column[number] if number < len(column) else "").ljust(width)
            for column, width in zip(columns, widths, strict=True)
        ]
        rows.append(_GAP.join(cells).rstrip())
    return "\n".join(rows)
