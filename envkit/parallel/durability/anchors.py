"""`Anchor` and `EnvHistory`: the points from which an environment can be replayed.

An anchor with a state or a seed is *certain*: every environment restored to it is the
same. A new environment without a seed is no certain anchor, because the next new one
may draw other random numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from envkit.parallel.messages import Request
from envkit.types import Array

__all__ = ["Anchor", "EnvHistory", "PastQuestion", "is_certain"]

# Questions whose effect may be missing from a state, or which a later state overrides.
_WITH_EFFECT = frozenset({"reset", "seed", "seed_rows", "set_attr"})


class Anchor(NamedTuple):
    """A point from which an environment can be restored directly.

    Attributes:
        numbers: The request number of each of its rows at that point.
        time: The time of the journal.
        seed: Its seed.
        state: Its state; `None` if it was new.
        ended: The rows that were at the end of an episode in that state.
    """

    numbers: Array
    time: int
    seed: Any
    state: bytes | None = None
    ended: tuple[bool, ...] = ()

    @property
    def is_certain(self) -> bool:
        """True if every environment restored from it is the same."""
        return is_certain(self.state, self.seed)


class PastQuestion(NamedTuple):
    """A question that changed an environment.

    Attributes:
        time: The time of the journal.
        method: The question.
        argument: The argument.
    """

    time: int
    method: str
    argument: Any


@dataclass(slots=True)
class EnvHistory:
    """The anchors of one environment, and the questions it was asked since.

    Attributes:
        env: Its index.
        rows: Its rows.
        is_batch: Whether it is a batch.
        saves: Whether it can save its state; `None` if nobody has asked yet.
        anchors: Its last anchors, the newest last. There are two if it has not moved
            since the newest, because nothing can be compared there.
        new: The anchor where it was new, or seeded and reset, which is as good as new.
        no_anchor_because: Why there is no anchor.
        seeded_at: The numbers of its rows when it was last seeded as a whole; kept
            until it begins.
        attributes: The attributes set on it before its anchors.
        questions: Its questions since then.
        resets: The number of its resets since it was new.
        begins: The request numbers of its last resets, the newest last.
        never_replayed: Whether it has proved not to be deterministic.
        begins_alike: False once a new environment, without a seed, has turned out
            different.
        killed_by: The number of the request that was pending when its worker ended.
    """

    env: int
    rows: range
    is_batch: bool
    saves: bool | None = None
    anchors: list[Anchor] = field(default_factory=list)
    new: Anchor | None = None
    no_anchor_because: str = ""
    seeded_at: Array | None = None
    attributes: dict[str, Any] = field(default_factory=dict)
    questions: list[PastQuestion] = field(default_factory=list)
    resets: int = 0
    begins: tuple[int, ...] = ()
    never_replayed: bool = False
    begins_alike: bool = True
    killed_by: int = -1

    @property
    def has_certain_anchor(self) -> bool:
        """True if a new environment can be brought to the same state."""
        return any(anchor.is_certain for anchor in self._all)

    @property
    def awaits_state(self) -> bool:
        """True if it has no certain anchor, but may have a state to save."""
        return self.saves is not False and not self.has_certain_anchor

    @property
    def _all(self) -> list[Anchor]:
        return self.anchors if self.new is None else [*self.anchors, self.new]

    def begin(self, anchor: Anchor) -> None:
        """Sets an anchor at its beginning, and keeps its other anchors."""
        self.new, self.resets, self.begins = anchor, 0, ()

    def begin_anew(self, anchor: Anchor) -> None:
        """Starts the history of a new environment that replaces the old one."""
        self.forget("")
        self.attributes.clear()
        self.questions.clear()
        self.seeded_at = None
        self.begin(anchor)
        self.add(anchor)

    def add(self, anchor: Anchor) -> None:
        """Adds an anchor, and drops everything that no anchor needs any longer."""
        before = self.anchors[-1:]
        if anchor.is_certain:
            before = [each for each in before if each.is_certain]
        self.anchors, self.no_anchor_because = [*before, anchor], ""
        oldest = min(each.time for each in self._all)
        self.attributes = self.attributes_at(oldest)
        self.questions = [each for each in self.questions if each.time >= oldest]

    def set_state(self, anchor: Anchor) -> None:
        """Restarts the history from a state that the environment was set to."""
        # An earlier seed no longer counts. The state may not contain the attributes.
        self.attributes = self.attributes_at(None)
        self.questions.clear()
        self.anchors.clear()
        self.add(anchor)

    def forget(self, why: str) -> None:
        """Forgets the anchors, because anything in the environment may have changed."""
        self.anchors.clear()
        self.new, self.no_anchor_because = None, why

    def make_certain(self, anchor: Anchor) -> None:
        """Turns the question that seeded the new environment into an anchor."""
        self.questions = [
            each for each in self.questions if not each.method.startswith("seed")
        ]
        self.new, self.anchors = anchor, [anchor]

    def attributes_at(self, time: int | None) -> dict[str, Any]:
        """Returns the attributes set on it before a given time, or ever."""
        attributes = dict(self.attributes)
        for asked, method, argument in self.questions:
            if method == "set_attr" and (time is None or asked < time):
                attributes[argument[0]] = argument[1]
        return attributes

    def ask(self, time: int, request: Request, argument: Any) -> None:
        """Records a question if it changes the environment."""
        if request.method in _WITH_EFFECT:
            self.questions.append(PastQuestion(time, request.method, argument))

    def withdraw(self, request: Request) -> None:
        """Forgets the last question, which did not reach the environment."""
        if request.method in _WITH_EFFECT:
            self.questions.pop()

    def count_reset(self, number: int) -> None:
        """Counts the reset of a request number, made or still to be made."""
        # A lost request is made again under the same number.
        if number not in self.begins:
            self.resets += 1
            self.begins = (*self.begins[-2:], number)


def is_certain(state: bytes | None, seed: Any) -> bool:
    """Returns True if a state or a seed determines the environment completely.

    Example:
        >>> is_certain(None, 3), is_certain(None, [3, None]), is_certain(b"", None)
        (True, False, True)
    """
    # A row of a batch without a seed may draw anything.
    is_left_out = isinstance(seed, list | tuple) and None in seed
    return state is not None or (seed is not None and not is_left_out)
