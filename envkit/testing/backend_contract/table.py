"""The table of promises: their names, what looks at them, and which rest on which."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from envkit.testing.backend_contract import (
    closing,
    endings,
    leaves,
    questions,
    rows,
    starting,
    waiting,
)
from envkit.testing.backend_contract.trial import BackendTrial

__all__ = ["CHECKS", "Check"]


class Check(NamedTuple):
    """One promise.

    Attributes:
        function: What looks at it; its name is that of the check, and its docstring
            is the promise.
        needs: The checks it rests on: if one of these fails, this one says nothing new.
    """

    function: Callable[[BackendTrial], None]
    needs: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """What it is called in reports and in `skip`."""
        return self.function.__name__

    @property
    def promise(self) -> str:
        """The promise in a sentence."""
        return (self.function.__doc__ or "").strip()


_STARTED = ("starts",)
_ROWS = ("visible", "once", "answers")
_ALL = (*_ROWS, "replies")

CHECKS: tuple[Check, ...] = (
    Check(starting.interface),
    Check(starting.starts, ("interface",)),
    Check(starting.failed_start, _STARTED),
    Check(starting.failed_setup, _STARTED),
    Check(rows.visible, _STARTED),
    Check(rows.once, _STARTED),
    Check(rows.answers, ("visible", "once")),
    Check(questions.replies, _ROWS),
    Check(starting.built_apart, _ALL),
    Check(rows.masked, _ROWS),
    Check(rows.orders, _ALL),
    Check(rows.portions, _ALL),
    Check(rows.each_row, _ALL),
    Check(rows.raises, _ROWS),
    Check(rows.neighbours, (*_ROWS, "raises")),
    Check(rows.rebuild, _ALL),
    Check(rows.autoreset, _ROWS),
    Check(rows.same_step, _ROWS),
    Check(leaves.leaf_kinds, _ROWS),
    Check(leaves.objects, _ROWS),
    Check(leaves.batches, _ROWS),
    Check(waiting.timeout, _ALL),
    Check(waiting.count, _ALL),
    Check(waiting.kept, _ROWS),
    Check(questions.methods, _ALL),
    Check(questions.state, _ALL),
    Check(questions.request_failures, _ALL),
    Check(questions.unsendable_results, _ALL),
    Check(questions.big_payload, _ALL),
    Check(questions.interleaved, _ALL),
    Check(endings.kill_idle, _ALL),
    Check(endings.kill_at_once, (*_ALL, "kill_idle")),
    Check(endings.kill_busy, (*_ALL, "kill_idle")),
    Check(endings.kill_starting, (*_ALL, "kill_idle")),
    Check(endings.death, _ALL),
    Check(endings.committed, (*_ALL, "death")),
    Check(endings.failed_replacement, (*_ALL, "kill_idle")),
    Check(endings.ghosts, _ALL),
    Check(closing.close_early, ("interface",)),
    Check(closing.close_busy, _ALL),
    Check(closing.close_idle, _ALL),
)
