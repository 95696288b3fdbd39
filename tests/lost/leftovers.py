"""What a play leaves behind."""

from __future__ import annotations

from tests.residue import Residue
from tests.waiting import until

__all__ = ["expect_nothing_since"]


def expect_nothing_since(before: Residue) -> None:
    """Waits until all processes and memory of pools are gone.

    Threads and descriptors may be those of libraries, which keep theirs.
    """

    def left() -> list[str]:
        since = Residue.now().since(before)
        return [text for key, text in since.items() if _is_of_pools(key)]

    assert until(lambda: not left()), left()


def _is_of_pools(key: object) -> bool:
    return isinstance(key, tuple) and key[0] in ("process", "segment")
