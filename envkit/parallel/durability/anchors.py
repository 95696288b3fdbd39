"""`Anchor` and `EnvHistory`: where an environment can be brought to, and since when.

An anchor with a state or a seed is *certain*: every environment that is brought there
is the same one. That an environment was new is not: the next one may draw other
numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from envkit.parallel.messages import Request
from envkit.types import Array

__all__ = ["Anchor", "EnvHistory", "PastQuestion", "is_certain"]

# Questions with an effect that is not in a state or that a state comes after.
_WITH_EFFECT = frozenset({"reset", "seed", "seed_rows", "set_attr"})


class Anchor(NamedTuple):
    """Where an environment can be brought at once.

    Attributes:
        numbers: The number of each of its rows there.
        time: The time of the journal.
        seed: What it had been seeded with.
        state: Its state; `None` if it was new.
        ended: Of the state, which rows were at the end of an episode.
    """

    numbers: Array
    time: int
    seed: Any
    state: bytes | None = None
    ended: tuple[bool, ...] = ()

    @property
    def is_certain(self) -> bool:
        """True if every environment that is brought there is the same."""
        return is_certain(self.state, self.seed)


class PastQuestion(NamedTuple):
    """What an environment was asked that has an effect.

    Attributes:
        time: The time of the journal.
        method: What it was asked.
        argument: The argument.
    """

    time: int
    method: str
    argument: Any


@dataclass(slots=True)
class EnvHistory:
    """The anchors of one environment, and what it was asked since beside its moves.

    Attributes:
        env: Its index.
        rows: Its rows.
        is_batch: Whether it is a batch.
        saves: Whether it can save its state; `None` if it was never asked.
        anchors: Its last anchors, the newest last: one, or two if the newest has not
            been moved away from, because nothing can be compared there.
        new: Where it was new, or seeded and reset, which is as good as new.
        no_anchor_because: Why there is no anchor.
        seeded_at: The numbers of its rows when it was last seeded as a whole, until
            it begins.
        attributes: The attributes it has been given before its anchors.
        questions: What it was asked since.
        resets: How many resets there have been since it was new.
        begins: The numbers under which the last of these are known, the newest last.
        never_replayed: Whether it has turned out not to be deterministic.
        begins_alike: False once a new one, without a seed, has turned out another.
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
        """True if a new environment can be made the same one."""
        return any(anchor.is_certain for anchor in self._all)

    @property
    def awaits_state(self) -> bool:
        """True if it has no certain anchor, and may have a state to save."""
        return self.saves is not False and not self.has_certain_anchor

    @property
    def _all(self) -> list[Anchor]:
        return self.anchors if self.new is None else [*self.anchors, self.new]

    def begin(self, anchor: Anchor) -> None:
        """Makes a place the one where it is new, beside its other anchors."""
        self.new, self.resets, self.begins = anchor, 0, ()

    def begin_anew(self, anchor: Anchor) -> None:
        """Begins the history of a new environment, in the place of the one before."""
        self.forget("")
        self.attributes.clear()
        self.questions.clear()
        self.seeded_at = None
        self.begin(anchor)
        self.add(anchor)

    def add(self, anchor: Anchor) -> None:
        """Adds an anchor, and forgets what no anchor needs any more."""
        before = self.anchors[-1:]
        if anchor.is_certain:
            before = [each for each in before if each.is_certain]
        self.anchors, self.no_anchor_because = [*before, anchor], ""
        oldest = min(each.time for each in self._all)
        self.attributes = self.attributes_at(oldest)
        self.questions = [each for each in self.questions if each.time >= oldest]

    def set_state(self, anchor: Anchor) -> None:
        """Begins again from a state that it was given."""
        # An earlier seed no longer counts. Attributes may not be in the state.
        self.attributes = self.attributes_at(None)
        self.questions.clear()
        self.anchors.clear()
        self.add(anchor)

    def forget(self, why: str) -> None:
        """Forgets the anchors, because the environment may be anything now."""
        self.anchors.clear()
        self.new, self.no_anchor_because = None, why

    def make_certain(self, anchor: Anchor) -> None:
        """Puts a seed in the place of the question that was asked to seed it as new."""
        self.questions = [
            each for each in self.questions if not each.method.startswith("seed")
        ]
        self.new, self.anchors = anchor, [anchor]

    def attributes_at(self, time: int | None) -> dict[str, Any]:
        """Returns the attributes that it has been given before a time, or at all."""
        attributes = dict(self.attributes)
        for asked, method, argument in self.questions:
            if method == "set_attr" and (time is None or asked < time):
                attributes[argument[0]] = argument[1]
        return attributes

    def ask(self, time: int, request: Request, argument: Any) -> None:
        """Keeps a question if it has an effect."""
        if request.method in _WITH_EFFECT:
            self.questions.append(PastQuestion(time, request.method, argument))

    def withdraw(self, request: Request) -> None:
        """Forgets the last question, which the environment was not asked."""
        if request.method in _WITH_EFFECT:
            self.questions.pop()

    def count_reset(self, number: int) -> None:
        """Counts the reset that it has, or will have, under a number."""
        # A request that was lost is made again, under the number that it had.
        if number not in self.begins:
            self.resets += 1
            self.begins = (*self.begins[-2:], number)


def is_certain(state: bytes | None, seed: Any) -> bool:
    """Returns whether a state or a seed says what environment it is.

    Example:
        >>> is_certain(None, 3), is_certain(None, [3, None]), is_certain(b"", None)
        (True, False, True)
    """
    # A row of a batch that is left out may draw anything.
    is_left_out = isinstance(seed, list | tuple) and None in seed
    return state is not None or (seed is not None and not is_left_out)
