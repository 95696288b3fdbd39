"""`Recovery`: lets the environments of a worker that is gone continue where they stood.

For each environment it keeps an *anchor*, which a new environment can be brought to at
once: a state that the environment has saved, or that it was new and had been seeded.
`Journal` has what its rows were asked since. After a crash, the new worker plays all of
that again, and what the rows show then is compared with what the pool has in its slab.

```
 anchor     moves, in the journal        pending, withdrawn after the crash
   │  ───── ───── ───── ───── ─────  │  ─────▶
   ▼                                 ▼
 a state, or new and seeded          the last time step: equal, bit for bit
```

What is equal goes on: its pending request is sent once more. What is not, or cannot be
tried, gets the end of an episode that rows without recovery get.

An anchor with a state or a seed is *certain*. That an environment was new is not: the
next one may draw other numbers. So environments without a certain anchor are asked for
their state as soon as they have begun. Where they are lost before that and a new one is
another, their episode ends, and they are brought back the next time.
"""

from __future__ import annotations

import contextlib
import logging
import pickle
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from envkit._internal.text import counted
from envkit.errors import WorkerError
from envkit.parallel.durability.journal import Journal, Moves
from envkit.parallel.messages import RemoteFailure, Replayed, ReplayPlan, Request
from envkit.parallel.restarts import RestartPolicy
from envkit.parallel.row_sets import are_among
from envkit.parallel.row_states import Rows
from envkit.parallel.slab import (
    REBUILD,
    SAME_STEP_ORDER,
    STEP,
    bytes_of,
    slot_of,
)
from envkit.parallel.workers import Question
from envkit.seeding import derived_seed
from envkit.time_step import StepType
from envkit.types import Array

__all__ = ["Recovery", "may_change", "same_bits"]

_LOGGER = logging.getLogger(__name__)

_LARGEST = 2**32 - 1
# In the bytes of step types only a LAST has the one, in those of flags only False the
# other.
_LAST, _FALSE = bytes([int(StepType.LAST)]), bytes([False])
# How often new anchors are looked for, in parts of the time for which each is to do.
_LOOKS = 8
# How many requests at least to wait for a busy worker to be idle.
_PATIENCE = 16
# A worker that ends so often while environments are played again does so because of it.
_MOST_ENDS = 2
# Calls after which an environment is what it was before.
_READING = frozenset(
    {
        "action_spec",
        "current_time_step",
        "discount_spec",
        "environment_spec",
        "envkit_ping",
        "envkit_server",
        "get_info",
        "get_state",
        "info_spec",
        "observation_spec",
        "provenance",
        "render",
        "reward_spec",
        "time_step_spec",
    }
)


class _Anchor(NamedTuple):
    """Where an environment can be brought at once.

    Attributes:
        numbers: The number of each of its rows there.
        time: The time of the journal.
        seed: What it had been seeded with.
        rebuilds: How often it had been rebuilt since.
        state: Its state; `None` if it was new.
        ended: Of the state, which rows were at the end of an episode.
        is_certain: Whether every environment that is brought there is the same.
    """

    numbers: Array
    time: int
    seed: Any
    rebuilds: int
    state: bytes | None = None
    ended: tuple[bool, ...] = ()

    @property
    def is_certain(self) -> bool:
        return _is_certain(self.state, self.seed)


class _Asked(NamedTuple):
    """What the environments of one worker are being asked.

    Attributes:
        question: The question.
        request: What is asked.
        noted: The environments, with what was known of their seeds before.
    """

    question: Question
    request: Request
    noted: list[tuple[_Known, tuple[Any, ...]]]


@dataclass(slots=True)
class _Known:
    """The anchors of one environment, and the facts that new ones depend on.

    Attributes:
        rows: Its rows.
        is_batch: Whether it is a batch.
        anchors: Its last anchors, the newest last: one, or two if the newest has not
            been moved away from, because nothing can be compared there.
        new: Where it was new, or seeded and reset, which is as good as new.
        void: Why there is no anchor.
        seed: What it was seeded with.
        rebuilds: How often it was rebuilt since.
        seeded_at: The numbers of its rows when it was last seeded as a whole, until
            it begins.
        attributes: The attributes it has been given before its anchors.
        notes: What it was asked since that has an effect: time, method, argument.
        can_save: Whether it can save its state; `None` if it was never asked.
        resets: How many resets there have been since it was new.
        begins: The numbers under which the last of these are known, the newest last.
        is_hopeless: Whether it is not tried again.
        begins_alike: False once a new one, without a seed, has turned out another.
        killed_by: The number of the request that was pending when its worker ended.
    """

    rows: range
    is_batch: bool
    anchors: list[_Anchor] = field(default_factory=list)
    new: _Anchor | None = None
    void: str = ""
    seed: Any = None
    rebuilds: int = 0
    seeded_at: Array | None = None
    attributes: dict[str, Any] = field(default_factory=dict)
    notes: list[tuple[int, str, Any]] = field(default_factory=list)
    can_save: bool | None = None
    resets: int = 0
    begins: tuple[int, ...] = ()
    is_hopeless: bool = False
    begins_alike: bool = True
    killed_by: int = -1

    @property
    def has_certain_anchor(self) -> bool:
        return any(
            anchor is not None and anchor.is_certain
            for anchor in (*self.anchors, self.new)
        )


class Recovery:
    """Keeps anchors, makes plans, and judges what has come of them.

    Attributes:
        recovered: For each worker, how many environments have continued.
    """

    def __init__(
        self, rows: Rows, policy: RestartPolicy, keeps_answers: bool, keeps_states: bool
    ) -> None:
        """Takes the rows of a pool, whose environments are new.

        Args:
            rows: The rows.
            policy: What was chosen.
            keeps_answers: Whether what a worker had answered survives its death.
            keeps_states: Whether one worker can read the states that another has saved.
        """
        self._rows, self._slab = rows, rows.slab
        self._policy = policy
        self._keeps_answers = keeps_answers
        workers = len(rows.layout.blocks)
        self.recovered = [0] * workers
        self._journal = Journal(rows.slab, policy.max_replay)
        self._known = [
            _Known(block, is_batch, can_save=None if keeps_states else False)
            for block, is_batch in zip(rows.rows_of_env, rows.is_batch, strict=True)
        ]
        self._envs_of = [
            sorted({int(env) for env in rows.env_of_row[slice(*block)]})
            for block in rows.layout.blocks
        ]
        # By worker: what is to be played again, or is at the moment, and how often the
        # worker has ended over it.
        self._plans: list[dict[int, ReplayPlan]] = [{} for _ in range(workers)]
        self._ends = [0] * workers
        # Until when no new anchor is looked for, in requests.
        self._every = max(1, (policy.anchor_every or 1) // _LOOKS)
        self._left = 0
        # How many requests until environments without a certain one are asked again.
        self._pause, self._longest_pause = 1, max(self._every, _PATIENCE)
        # Whether an environment has none, or may have none.
        self._has_void = True
        self._all = np.arange(rows.layout.rows)
        # By row, the number of the newest anchor, and whether there can be another.
        self._anchored = rows.slab.numbers.copy()
        self._saves = np.ones(rows.layout.rows, bool)
        # Whether resets are counted, for environments that cannot save their state.
        self._counts_resets = True
        self._sequence, self._begun = rows.slab.words.numbers, bytes_of(rows.begun)
        self._types = [bytes_of(rows.slab.columns(slot)[0]) for slot in (0, 1)]
        self._asked: dict[int, _Asked] = {}
        self._states: dict[int, tuple[bytes, Sequence[bool]]] = {}
        for env in range(len(self._known)):
            self._note_new(env)

    def take_over(self, other: Recovery) -> None:
        """Goes on with what is known of environments that stay, in idle workers."""
        for worker in list(other._asked):
            other._settle(worker)
        self._journal.take_over(other._journal)
        count = min(len(self._all), len(other._all))
        self._anchored[:count] = other._anchored[:count]
        self._saves[:count] = other._saves[:count]
        known, workers = len(other._known), len(other._ends)
        self._known[:known] = other._known[: len(self._known)]
        self.recovered[:workers] = other.recovered[: len(self.recovered)]
        for env in range(known, len(self._known)):
            self._note_new(env)

    # What happens to rows, before they are asked.

    def note_all(self) -> None:
        """Notes that all rows are about to step."""
        # Hot: called once per batch step.
        is_noted = self._journal.note_all(STEP)
        if self._counts_resets:
            slot = slot_of(self._sequence[0])
            if _FALSE in self._begun.tobytes():
                self._count_resets(self._all, np.full(self._all.shape, STEP))
            elif _LAST in self._types[slot].tobytes():
                self._count_ends(slot)
        if not is_noted:
            self._journal.note(self._all, np.full(self._all.shape, STEP))
        self._left -= 1

    def note(self, rows: Array, command: int | Array) -> None:
        """Notes what rows are about to be asked; their actions have been written."""
        commands = np.broadcast_to(command, rows.shape)
        if (commands != STEP).any():
            self._note_begins(rows, commands)
        if self._counts_resets:
            self._count_resets(rows, commands)
        self._journal.note(rows, commands)
        self._left -= 1

    def _note_begins(self, rows: Array, commands: Array) -> None:
        """Makes anchors where environments begin that are new, or as good as new."""
        asked = dict(zip(rows.tolist(), commands.tolist(), strict=True))
        for env in {int(env) for env in self._rows.env_of_row[rows]}:
            known = self._known[env]
            own = [asked.get(row, STEP) for row in known.rows]
            if REBUILD in own:
                self._note_new(env, known.seed, known.rebuilds + 1)
            elif STEP not in own and self._is_as_seeded(known):
                # The anchors before it stay, because they need no such promise.
                known.new, known.resets, known.begins = self._here(known), 0, ()
            known.seeded_at = None
            if not known.has_certain_anchor and known.can_save is not False:
                self._look_soon()

    def _is_as_seeded(self, known: _Known) -> bool:
        """True if an environment was seeded, as new, and has not moved since."""
        if known.new is None or known.seeded_at is None:
            return False
        return self._is_unmoved(known, known.seeded_at)

    def _is_unmoved(self, known: _Known, numbers: Array) -> bool:
        """True if an environment was asked nothing since its rows had some numbers."""
        moves = self._journal.since(known.rows, numbers)
        return moves is not None and not len(moves.times)

    def _note_new(self, env: int, seed: Any = None, rebuilds: int = 0) -> None:
        """Notes that an environment is new here."""
        known = self._known[env]
        known.seed, known.rebuilds = seed, rebuilds
        known.new, known.resets, known.begins = self._here(known), 0, ()
        known.seeded_at, known.void = None, ""
        known.attributes.clear()
        known.notes.clear()
        known.anchors.clear()
        self._add(known, known.new)
        if not known.new.is_certain:
            self._look_soon()

    def _here(
        self, known: _Known, state: bytes | None = None, ended: tuple[bool, ...] = ()
    ) -> _Anchor:
        return _Anchor(
            self._numbers(known),
            self._now,
            known.seed,
            known.rebuilds,
            state,
            ended,
        )

    def _numbers(self, known: _Known) -> Array:
        return self._slab.numbers[known.rows.start : known.rows.stop].copy()

    @property
    def _now(self) -> int:
        return self._journal.time

    def _add(self, known: _Known, anchor: _Anchor) -> None:
        """Adds an anchor, and forgets what none needs any more."""
        before = known.anchors[-1:]
        if anchor.is_certain:
            before = [each for each in before if each.is_certain]
        known.anchors = [*before, anchor]
        self._anchored[known.rows.start : known.rows.stop] = anchor.numbers
        oldest = min(
            each.time for each in (*known.anchors, known.new) if each is not None
        )
        for time, method, argument in known.notes:
            if time < oldest and method == "set_attr":
                known.attributes[argument[0]] = argument[1]
        known.notes = [note for note in known.notes if note[0] >= oldest]

    def _count_resets(self, rows: Array, commands: Array) -> None:
        """Counts the resets of single environments, those that were due as well."""
        is_same = self._slab.autoreset == SAME_STEP_ORDER
        has_begun = self._rows.begun[rows] & (self._rows.begin[rows] == 0)
        ended = self._slab.shows_last(rows) & has_begun
        begins = ended | ~has_begun | (commands != STEP)
        for row, command, has_ended in zip(
            rows[begins].tolist(),
            commands[begins].tolist(),
            ended[begins].tolist(),
            strict=True,
        ):
            number = self._sequence[row]
            if is_same and has_ended:
                self._count_reset(row, number)
            if command != STEP or not is_same or not has_ended:
                self._count_reset(row, number + 2 & _LARGEST)

    def _count_ends(self, slot: int) -> None:
        """Counts the resets of rows that all step, of which some show a `LAST`."""
        later = 0 if self._slab.autoreset == SAME_STEP_ORDER else 2
        for row in np.flatnonzero(self._slab.columns(slot)[0] == _LAST[0]).tolist():
            self._count_reset(row, self._sequence[row] + later & _LARGEST)

    def _count_reset(self, row: int, number: int) -> None:
        """Counts the reset that a row has, or will have, under a number."""
        known = self._known[self._rows.env_of_row[row]]
        # A request that was lost is made again, under the number that it had.
        if number not in known.begins:
            known.resets += 1
            known.begins = (*known.begins[-2:], number)

    # What environments are asked besides.

    def note_question(self, question: Question, worker: int, request: Request) -> None:
        """Notes what environments of a worker are about to be asked."""
        self._settle(worker)
        noted: list[tuple[_Known, tuple[Any, ...]]] = []
        for env, argument in zip(request.envs, request.arguments, strict=True):
            known, method = self._known[env], request.method
            noted.append((known, (known.seed, known.rebuilds, known.seeded_at)))
            if method in ("set_attr", "reset", "seed", "seed_rows"):
                known.notes.append((self._now, method, argument))
                if method.startswith("seed"):
                    self._note_seed(known, method, argument)
            elif method == "set_state":
                self._states[env] = argument
            elif method == "assume_seed":
                known.seed, known.rebuilds = argument
        self._asked[worker] = _Asked(question, request, noted)

    def note_answered(self, worker: int) -> None:
        """Notes that the environments of a worker have been asked."""
        asked = self._asked.pop(worker, None)
        if asked is None:
            return
        _, request, _ = asked
        for env, argument in zip(request.envs, request.arguments, strict=True):
            if request.method.startswith("seed"):
                self._note_seeded(self._known[env])
            elif request.method == "set_state":
                self.forget(env, "it has been set to a state since")
            elif may_change(request.method, argument):
                self.forget(env, f"call({argument[0]!r}) may have changed it since")

    def _settle(self, worker: int) -> None:
        """Takes it that a worker has been asked what no call waits for any more."""
        asked = self._asked.get(worker)
        if asked is not None and not asked.question.is_awaited:
            self.note_answered(worker)

    def _take_back(self, worker: int) -> None:
        """Forgets what environments were being asked when their worker ended."""
        self._settle(worker)
        asked = self._asked.pop(worker, None)
        if asked is None:
            return
        has_note = asked.request.method in ("set_attr", "reset", "seed", "seed_rows")
        for known, before in asked.noted:
            known.seed, known.rebuilds, known.seeded_at = before
            if has_note:
                known.notes.pop()

    def _note_seed(self, known: _Known, method: str, argument: Any) -> None:
        if method == "seed" or known.is_batch:
            known.seed = argument
        else:
            known.seed = known.seed if argument[0] is None else argument[0]
        known.rebuilds = 0
        # A batch in which some rows go on is not as good as new.
        known.seeded_at = self._numbers(known) if _is_whole(argument) else None

    def _note_seeded(self, known: _Known) -> None:
        """Makes an environment's anchor certain that was seeded before it moved."""
        new = known.new
        if known.seeded_at is None or new is None or new.is_certain:
            return
        if self._is_unmoved(known, new.numbers):
            known.notes = [
                note for note in known.notes if not note[1].startswith("seed")
            ]
            known.new = self._here(known)
            known.anchors = [known.new]

    def note_states(self) -> None:
        """Notes that the environments have been given their states."""
        for env, (state, ended) in self._states.items():
            known = self._known[env]
            known.anchors.clear()
            known.void = ""
            # A seed of before is over; attributes may be no part of the state.
            for _, method, argument in known.notes:
                if method == "set_attr":
                    known.attributes[argument[0]] = argument[1]
            known.notes.clear()
            flags = tuple(bool(one) for one in ended)
            self._add(known, self._here(known, state, flags))
        self._states.clear()

    def forget(self, env: int, why: str) -> None:
        """Forgets the anchors of an environment that may be anything now."""
        known = self._known[env]
        known.anchors.clear()
        known.new, known.void = None, why
        self._look_soon()

    # New anchors.

    def _look_soon(self) -> None:
        """Lets the next call ask environments that have no certain anchor."""
        self._left, self._pause, self._has_void = 0, 1, True

    @property
    def is_due(self) -> bool:
        """True if it is time to look for environments that need a new anchor."""
        return self._left <= 0

    def renew(
        self,
        ask: Callable[[str, Sequence[int], Sequence[Any]], Sequence[Any]],
        is_ready: Sequence[bool],
    ) -> None:
        """Asks environments for their state whose anchor is too far away.

        Environments of workers that are busy are left for another time, unless that
        would soon be too late: then their answers are waited for.

        Args:
            ask: Asks some environments something.
            is_ready: For each worker, whether it is there.
        """
        self._left = self._every
        if not self._has_void and not self._may_need_anchors():
            return
        for worker in list(self._asked):
            self._settle(worker)
        envs = [
            env
            for worker, block in enumerate(self._rows.layout.blocks)
            if is_ready[worker] and not self._plans[worker]
            for env in self._envs_to_ask(worker, block)
        ]
        if envs:
            self._ask_for_states(envs, ask)
        void = [
            not known.has_certain_anchor
            for known in self._known
            if known.can_save is None
            or (known.can_save and not known.has_certain_anchor)
        ]
        self._has_void = bool(void)
        if any(void):
            # Each look in vain takes its time where there are many environments.
            self._left = self._pause
            self._pause = min(2 * self._pause, self._longest_pause)

    def _envs_to_ask(self, worker: int, block: tuple[int, int]) -> list[int]:
        """Returns the environments of a worker that are to be asked for their state."""
        envs = [
            env for env in self._envs_of[worker] if self._needs_anchor(self._known[env])
        ]
        rows = range(*block)
        if not envs or any(row in rows for row in self._rows.held):
            return []
        is_idle = not self._slab.owing_rows()[slice(*block)].any()
        is_late = any(self._is_overdue(self._known[env]) for env in envs)
        return envs if is_idle or is_late else []

    def _is_overdue(self, known: _Known) -> bool:
        """True if an environment cannot be left without a new anchor for longer."""
        if not known.has_certain_anchor:
            return self._pause >= self._longest_pause
        away = int((self._numbers(known) - known.anchors[-1].numbers).max()) >> 1
        policy = self._policy
        return 2 * away >= policy.max_replay + (policy.anchor_every or 0)

    def _ask_for_states(
        self,
        envs: Sequence[int],
        ask: Callable[[str, Sequence[int], Sequence[Any]], Sequence[Any]],
    ) -> None:
        # A worker that ends meanwhile is a matter of the call that comes next.
        with contextlib.suppress(WorkerError):
            answers = ask("get_state", envs, [None] * len(envs))
            for env, answer in zip(envs, answers, strict=True):
                known = self._known[env]
                if not self._needs_anchor(known):
                    continue  # It is another one, whose worker was lost meanwhile.
                known.can_save = not isinstance(answer, RemoteFailure)
                self._saves[known.rows.start : known.rows.stop] = known.can_save
                if known.can_save:
                    ended = tuple(self._rows.has_ended(row) for row in known.rows)
                    known.void = ""
                    self._add(known, self._here(known, answer, ended))
        self._counts_resets = any(
            known.can_save is not True and not known.is_batch for known in self._known
        )

    def _may_need_anchors(self) -> bool:
        """True if an environment may need an anchor; quick, as it mostly is not."""
        every = self._policy.anchor_every
        if every is None:
            return bool(self._stand_at_first(self._all).any())
        away = (self._slab.numbers - self._anchored) >> 1
        return bool(((away >= every) & self._saves).any())

    def _needs_anchor(self, known: _Known) -> bool:
        rows = known.rows
        if known.can_save is False or any(self._is_special(row) for row in rows):
            return False
        if not self._rows.begun[rows.start : rows.stop].all():
            return False
        if known.can_save is None or not known.has_certain_anchor:
            return True
        away = self._numbers(known) - known.anchors[-1].numbers
        if self._policy.anchor_every is not None:
            return int(away.max()) >> 1 >= self._policy.anchor_every
        own = np.arange(rows.start, rows.stop)
        return bool(away.any()) and bool(self._stand_at_first(own).any())

    def _stand_at_first(self, rows: Array) -> Array:
        types = self._slab.step_types(rows)
        first: Array = types == StepType.FIRST
        if self._slab.autoreset == SAME_STEP_ORDER:
            first |= types == StepType.LAST
        return first

    def _is_special(self, row: int) -> bool:
        rows = self._rows
        return bool(rows.begin[row]) or row in rows.held or row in rows.errors

    # A worker that has ended.

    def take(self, worker: int, lost: dict[int, int]) -> list[int]:
        """Notes that a worker is to be replaced; its environments are to continue.

        Args:
            worker: The worker.
            lost: Its rows that owed an answer, with what they had been asked for; those
                join them whose request was waiting for the end of a replay.

        Returns:
            The rows of environments that cannot continue.
        """
        rows = self._rows
        self._take_back(worker)
        was_replaying, self._plans[worker] = bool(self._plans[worker]), {}
        self._ends[worker] = self._ends[worker] + 1 if was_replaying else 0
        given_up: list[int] = []
        guilty = self._guilty(lost)
        for row in range(*rows.layout.blocks[worker]):
            if row in rows.resumed:
                lost[row] = rows.drop_held(row)
        for env in self._envs_of[worker]:
            known = self._known[env]
            if any(self._is_special(row) for row in known.rows):
                given_up += known.rows
                continue
            if known.is_hopeless:  # That has been said.
                given_up += known.rows
                continue
            plan = self._plan(env, self._ends[worker], env in guilty)
            if isinstance(plan, str):
                _tell(env, plan)
                given_up += known.rows
                continue
            self._plans[worker][env] = plan
            for row in known.rows:
                if row in lost:
                    rows.hold(row, lost.pop(row))
        return given_up

    def _guilty(self, lost: dict[int, int]) -> set[int]:
        """Returns the environments whose worker has ended twice over one request."""
        suspects = list(lost)[:1] if self._keeps_answers else list(lost)
        guilty = set()
        for row in suspects:
            env = int(self._rows.env_of_row[row])
            known, number = self._known[env], int(self._slab.numbers[row])
            if known.killed_by == number:
                guilty.add(env)
            known.killed_by = number
        return guilty

    def _plan(self, env: int, ends: int, is_guilty: bool) -> ReplayPlan | str:
        """Returns how an environment is to be brought back, or why it cannot be."""
        known = self._known[env]
        if is_guilty:
            return "the same request has ended its worker again"
        if ends >= _MOST_ENDS:
            return f"its new worker has ended {ends} times before it was back"
        if not known.anchors and known.new is None:
            return known.void
        # A new one without a seed may be like it all the same, as one is that is seeded
        # in its constructor; and where nothing has been seen, any is.
        begun = self._rows.begun[known.rows.start : known.rows.stop]
        if known.has_certain_anchor or known.begins_alike or not begun.any():
            return self._plan_from_anchors(known)
        return _not_yet(known)

    def _plan_from_anchors(self, known: _Known) -> ReplayPlan | str:
        """Returns how an environment is to be brought back, from an anchor it has."""
        anchors = known.anchors[::-1]
        if len(anchors) > 1 and (anchors[0].numbers == self._numbers(known)).all():
            anchors.pop(0)
        candidates = [
            anchor for anchor in (*anchors[:1], known.new) if anchor is not None
        ]
        if known.has_certain_anchor:
            candidates = [anchor for anchor in candidates if anchor.is_certain]
        for anchor in candidates:
            moves = self._moves(known, anchor.numbers)
            if moves is not None:
                return self._plan_of(known, anchor, moves)
        if known.new is not None and any(each is known.new for each in candidates):
            plan = self._plan_of_resets(known, known.new)
            if plan is not None:
                return plan
        return (
            f"more than max_replay={self._policy.max_replay} steps would have to be "
            "played again"
        )

    def _plan_of_resets(self, known: _Known, new: _Anchor) -> ReplayPlan | None:
        """Returns how an environment is reset as often, and plays its last episode.

        Resets alone may be what its random numbers depend on.
        """
        # Seeds and options would have to come between the resets.
        has_notes = any(
            method == "reset" or (method != "set_attr" and time > new.time)
            for time, method, _ in known.notes
        )
        if known.is_batch or has_notes:
            return None
        number = int(self._sequence[known.rows.start])
        # A reset that was lost is one too many.
        lost = sum(begun == number + 2 & _LARGEST for begun in known.begins)
        resets, begins = known.resets - lost, known.begins[: -lost or None]
        if not begins or resets > self._policy.max_replay:
            return None
        moves = self._moves(known, np.array(begins[-1:], np.uint32))
        if moves is None:
            return None
        return self._plan_of(known, new, moves, resets, begins[-1])

    def _moves(self, known: _Known, numbers: Array) -> Moves | None:
        away = int((self._numbers(known) - numbers).max()) >> 1
        if away > self._policy.max_replay:
            return None
        return self._journal.since(known.rows, numbers)

    def _plan_of(
        self,
        known: _Known,
        anchor: _Anchor,
        moves: Moves,
        resets: int = 0,
        begun: int = 0,
    ) -> ReplayPlan:
        attributes = dict(known.attributes)
        first = anchor.time
        if resets:
            first = int(moves.times[0]) if len(moves.times) else self._now
        for time, method, argument in known.notes:
            if time < first and method == "set_attr":
                attributes[argument[0]] = argument[1]
        return ReplayPlan(
            seed=derived_seed(anchor.seed, anchor.rebuilds),
            known_seed=(known.seed, known.rebuilds),
            attributes=tuple(attributes.items()),
            state=anchor.state,
            ended=anchor.ended,
            resets=resets,
            number=begun if resets else int(anchor.numbers[0]),
            notes=tuple(note for note in known.notes if note[0] >= first),
            **moves._asdict(),
        )

    # The new worker.

    def continuing(self) -> frozenset[int]:
        """Returns the environments that are to continue in new workers."""
        return frozenset(env for plans in self._plans for env in plans)

    def plans(self, worker: int) -> dict[int, ReplayPlan]:
        """Returns, by environment, what a new worker is to play again."""
        return self._plans[worker]

    def note_started(self, worker: int, seeds: Iterable[Any]) -> None:
        """Notes that a new worker is there.

        Args:
            worker: The worker.
            seeds: What it has seeded its environments with.
        """
        for env, seed in zip(self._envs_of[worker], seeds, strict=True):
            if env not in self._plans[worker]:
                self._note_new(env, seed)

    def judge(self, worker: int, results: Sequence[Any]) -> list[int]:
        """Judges what a new worker has played again.

        Args:
            worker: The worker.
            results: For each environment of its plan where it stands now, or what it
                has raised.

        Returns:
            The rows of environments that cannot continue; those of the others may.
        """
        plans = self._plans[worker]
        given_up: list[int] = []
        steps = bad = 0
        for (env, plan), result in zip(plans.items(), results, strict=True):
            why = self._verdict(env, plan, result)
            if not why:
                steps += plan.length
                self.recovered[worker] += 1
                continue
            known = self._known[env]
            if _is_certain(plan.state, plan.seed):
                known.is_hopeless = True
                _tell(env, why, is_last=True)
            else:
                known.begins_alike = False
                _tell(env, _not_yet(known))
            given_up += known.rows
            bad += 1
        self._plans[worker], self._ends[worker] = {}, 0
        if good := len(plans) - bad:
            _LOGGER.info(
                "worker %d: %s continue%s after %s played again",
                worker,
                counted(good, "environment"),
                "s" if good == 1 else "",
                counted(steps, "step"),
            )
        return given_up

    def _verdict(self, env: int, plan: ReplayPlan, result: Any) -> str:
        """Returns why an environment is not where the one before it stood."""
        if isinstance(result, RemoteFailure):
            first = result.message.partition("\n")[0]
            return (
                f"playing its steps again has raised {result.type_name}: {first:.200}"
            )
        known, slab, rows = self._known[env], self._slab, self._rows
        replayed = Replayed(*result)
        compared = (
            np.array(replayed.is_known) & rows.begun[known.rows.start : known.rows.stop]
        )
        own = known.rows.start + np.flatnonzero(compared)
        shows_last = slab.shows_last(own)
        is_same = slab.autoreset == SAME_STEP_ORDER
        asked = are_among(own, rows.resumed)
        # A worker that was lost amid a step may have begun to write what comes after
        # the end of an episode.
        stands = ~(shows_last & asked) if is_same else np.ones(len(own), bool)
        # Where it has not moved, it has no LAST, but only the FIRST that came after it.
        has_moved = are_among(own - known.rows.start, plan.rows.tolist())
        shows = shows_last & has_moved if is_same else np.zeros(len(own), bool)
        for leaves, expected, mask in (
            (replayed.standing, slab.read_standing(own), stands),
            (replayed.shown, slab.read(own), shows),
        ):
            for leaf, other in zip(leaves, expected, strict=True):
                if not same_bits(leaf[compared][mask], other[mask]):
                    return (
                        "it is not deterministic: the same steps have led elsewhere "
                        "when they were played again"
                    )
        return ""

    def drop(self, worker: int) -> None:
        """Forgets a worker that stays gone."""
        self._plans[worker] = {}


def _is_certain(state: bytes | None, seed: Any) -> bool:
    """Returns whether a state or a seed says what environment it is."""
    return state is not None or (seed is not None and _is_whole(seed))


def _is_whole(seed: Any) -> bool:
    """Returns whether no row of a batch is left out."""
    return not isinstance(seed, list | tuple) or None not in seed


def _not_yet(known: _Known) -> str:
    """Returns why an environment without a certain anchor cannot be brought back."""
    if known.can_save is False:
        return "it has no seed and cannot save its state (seed the pool to change that)"
    return "it has neither a seed nor a saved state yet"


def _tell(env: int, why: str, is_last: bool = False) -> None:
    """Logs why an environment cannot continue."""
    _LOGGER.warning(
        "env %d cannot continue where it was lost, because %s; its episode ends here%s",
        env,
        why,
        ", and wherever it is lost again" * is_last,
    )


def may_change(method: str, argument: Any) -> bool:
    """Returns whether an environment may be another one after a question.

    Example:
        >>> may_change("call", ("get_info", (), {})), may_change("call", ("jump",))
        (False, True)
    """
    return method == "call" and argument[0] not in _READING


def same_bits(one: Array, other: Array) -> bool:
    """Returns whether two arrays are equal bit for bit; one NaN is as good as another.

    Example:
        >>> same_bits(np.array([np.nan, 0.0]), np.array([-np.nan, 0.0]))
        True
        >>> same_bits(np.array([0.0]), np.array([-0.0]))
        False
    """
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    if one.dtype.hasobject:
        return all(map(_are_alike, one.flat, other.flat))
    if one.dtype.kind in "fc":
        one, other = (np.where(np.isnan(each), np.nan, each) for each in (one, other))
    return one.tobytes() == other.tobytes()


def _are_alike(one: Any, other: Any) -> bool:
    """Returns whether two objects are equal, as far as that can be seen."""
    if type(one) is not type(other):
        return False
    with contextlib.suppress(Exception):  # Objects may compare and pickle as they like.
        if pickle.dumps(one) == pickle.dumps(other):
            return True
    with contextlib.suppress(Exception):
        return bool(one == other)
    return False
