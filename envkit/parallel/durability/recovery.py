"""`Recovery`: continues the environments of a lost worker where they were.

For each environment it keeps an *anchor*, a point to which a new environment can be
brought at once: a saved state, or a new environment with a seed. `Journal` has the
requests of its rows since then. After a crash, the new worker replays all of them, and
the resulting rows are compared with those in the pool's slab.

```
 anchor     moves, in the journal        pending, withdrawn after the crash
   │  ───── ───── ───── ───── ─────  │  ─────▶
   ▼                                 ▼
 a state, or new and seeded          the last time step: equal, bit for bit
```

If they are equal, the environment continues: its pending request is sent again. If they
are not, or a replay is impossible, the episode ends as it does without recovery.

An environment without a certain anchor is not recoverable yet, so it is asked for its
state as soon as it has begun. If it is lost before that and the new one differs, its
episode ends, and it is asked again after the next reset.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from envkit._internal.text import counted
from envkit.parallel.durability.anchors import Anchor, EnvHistory, is_certain
from envkit.parallel.durability.journal import Journal
from envkit.parallel.durability.plans import plan_of, why_it_differs, without_anchor
from envkit.parallel.durability.state_requests import StateRequests
from envkit.parallel.messages import ReplayPlan, Request, may_change
from envkit.parallel.observers import RowObserver
from envkit.parallel.restarts import RestartPolicy
from envkit.parallel.slab import bytes_of
from envkit.parallel.slab_layout import REBUILD, SAME_STEP_ORDER, STEP, slot_of
from envkit.time_step import StepType
from envkit.types import Array

if TYPE_CHECKING:
    from envkit.parallel.pool import Pool
    from envkit.parallel.slab import Slab

__all__ = ["Recovery"]

_LOGGER = logging.getLogger(__name__)

_LARGEST = 2**32 - 1
# For searching bytes: among step types only a LAST contains the first, among flags only
# False the second.
_LAST, _FALSE = bytes([int(StepType.LAST)]), bytes([False])
# If a worker dies this often during replays, the replay is the cause.
_MOST_ENDS = 2


class Recovery(RowObserver):
    """Keeps anchors, makes new workers replay from them, and judges the results."""

    def __init__(
        self,
        pool: Pool,
        policy: RestartPolicy,
        *,
        keeps_answers: bool,
        keeps_states: bool,
    ) -> None:
        """Takes a pool whose environments are new.

        Args:
            pool: The pool.
            policy: The user's policy.
            keeps_answers: Whether a worker's answers survive its death.
            keeps_states: Whether a worker can read the states that another worker
                saved.
        """
        self._pool, self._policy = pool, policy
        self._keeps_answers, self._keeps_states = keeps_answers, keeps_states
        self._histories: list[EnvHistory] = []
        self._recovered: list[int] = []
        # By worker: the open question to its environments, and when they were last
        # seeded before it.
        self._asked: dict[int, tuple[Request, list[Array | None]]] = {}
        # By environment: the state that is being set.
        self._states: dict[int, tuple[bytes, Sequence[bool]]] = {}
        self._states_to_ask = StateRequests(pool, policy, self._add_state)
        self._adopt()
        self._journal = Journal(pool.slab, policy.max_replay)
        self._begin_anew(range(len(self._histories)))

    def _adopt(self) -> None:
        """Adopts the pool's current rows, and keeps their histories."""
        pool = self._pool
        rows = pool.rows
        self._rows, self._slab = rows, pool.slab
        known = self._histories[: len(pool.rows_of_env)]
        saves = None if self._keeps_states else False
        self._histories = known + [
            EnvHistory(env, pool.rows_of_env[env], pool.is_batch[env], saves)
            for env in range(len(known), len(pool.rows_of_env))
        ]
        workers = len(rows.layout.blocks)
        self._recovered = (self._recovered + [0] * workers)[:workers]
        # By worker: the plans to replay, or being replayed, and how many times they
        # have killed the worker.
        self._plans: list[dict[int, ReplayPlan]] = [{} for _ in range(workers)]
        self._ends = [0] * workers
        self._all = np.arange(rows.layout.rows)
        # Resets are counted only while an environment may be unable to save its state.
        self._counts_resets = True
        self._sequence, self._begun = rows.slab.words.numbers, bytes_of(rows.begun)
        self._types = [bytes_of(rows.slab.columns(slot)[0]) for slot in (0, 1)]
        self._states_to_ask.adopt(self._histories)

    def resized(self, before: Slab) -> None:
        """Keeps the histories of the remaining environments; workers must be idle."""
        known = len(self._histories)
        self._adopt()
        journal, self._journal = (
            self._journal,
            Journal(self._slab, self._policy.max_replay),
        )
        self._journal.adopt(journal)
        self._begin_anew(range(known, len(self._histories)))

    def counts(self, worker: int) -> Mapping[str, int]:
        """Returns how many environments were recovered in a worker."""
        return {"recovered": self._recovered[worker]}

    # Requests to rows.

    def asked_all(self) -> None:
        """Records that all rows are about to step."""
        # Hot: called once per batch step.
        is_written = self._journal.write_all(STEP)
        if self._counts_resets:
            slot = slot_of(self._sequence[0])
            if _FALSE in self._begun.tobytes():
                self._count_resets(self._all, np.full(self._all.shape, STEP))
            elif _LAST in self._types[slot].tobytes():
                self._count_ends(slot)
        if not is_written:
            self._journal.write(self._all, np.full(self._all.shape, STEP))
        self._states_to_ask.left -= 1

    def asked(self, rows: Array, commands: int | Array) -> None:
        """Records a request that rows are about to get."""
        commands = np.broadcast_to(commands, rows.shape)
        if (commands != STEP).any():
            self._set_begins(rows, commands)
        if self._counts_resets:
            self._count_resets(rows, commands)
        self._journal.write(rows, commands)
        self._states_to_ask.left -= 1

    def prepare(self) -> None:
        """Asks environments for their states before a step, like `answered`."""
        self.answered()

    def answered(self) -> None:
        """Asks environments whose anchors are too far back for their states."""
        # Hot: called once per batch step.
        if self._states_to_ask.left <= 0:
            is_replaying = [bool(plans) for plans in self._plans]
            if self._states_to_ask.send(is_replaying):
                self._counts_resets = any(
                    known.saves is not True and not known.is_batch
                    for known in self._histories
                )

    def _add_state(self, known: EnvHistory, state: bytes) -> None:
        """Adds a saved state to an environment's anchors."""
        ended = tuple(self._rows.has_ended(row) for row in known.rows)
        self._add(known, self._here(known, state, ended))

    def _set_begins(self, rows: Array, commands: Array) -> None:
        """Sets anchors for new environments, and for environments as good as new."""
        asked = dict(zip(rows.tolist(), commands.tolist(), strict=True))
        for env in {int(env) for env in self._rows.env_of_row[rows]}:
            known = self._histories[env]
            own = [asked.get(row, STEP) for row in known.rows]
            if REBUILD in own:
                self._begin_anew([env])
            elif STEP not in own and self._is_as_seeded(known):
                # Earlier anchors stay, because they do not depend on this one.
                known.begin(self._here(known))
            known.seeded_at = None
            if known.awaits_state:
                self._states_to_ask.hurry()

    def _is_as_seeded(self, known: EnvHistory) -> bool:
        """Returns True if an environment was new when seeded, and never moved."""
        if known.new is None or known.seeded_at is None:
            return False
        return self._is_unmoved(known, known.seeded_at)

    def _is_unmoved(self, known: EnvHistory, numbers: Array) -> bool:
        """Returns True if an environment has had no request after these numbers."""
        moves = self._journal.since(known.rows, numbers)
        return moves is not None and not len(moves.times)

    def _begin_anew(self, envs: Sequence[int]) -> None:
        """Starts the histories of new environments."""
        for env in envs:
            known = self._histories[env]
            anchor = self._here(known)
            known.begin_anew(anchor)
            self._add(known, anchor)
            if not anchor.is_certain:
                self._states_to_ask.hurry()

    def _add(self, known: EnvHistory, anchor: Anchor) -> None:
        known.add(anchor)
        self._states_to_ask.set_anchor(known.rows, anchor.numbers)

    def _here(
        self,
        known: EnvHistory,
        state: bytes | None = None,
        ended: tuple[bool, ...] = (),
    ) -> Anchor:
        return Anchor(
            self._journal.numbers(known.rows),
            self._journal.time,
            self._pool.workers.seeds[known.env].in_use,
            state,
            ended,
        )

    def _count_resets(self, rows: Array, commands: Array) -> None:
        """Counts the resets of single environments, automatic ones included."""
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
                self._history_of(row).count_reset(number)
            if command != STEP or not is_same or not has_ended:
                self._history_of(row).count_reset(number + 2 & _LARGEST)

    def _count_ends(self, slot: int) -> None:
        """Counts the resets in a step of all rows, some of which show a `LAST`."""
        later = 0 if self._slab.autoreset == SAME_STEP_ORDER else 2
        for row in np.flatnonzero(self._slab.columns(slot)[0] == _LAST[0]).tolist():
            number = self._sequence[row] + later & _LARGEST
            self._history_of(row).count_reset(number)

    def _history_of(self, row: int) -> EnvHistory:
        return self._histories[int(self._rows.env_of_row[row])]

    # Questions to environments.

    def questioned(self, worker: int, request: Request) -> None:
        """Records a question that environments of a worker are about to get."""
        seeded_at = []
        for env, argument in zip(request.envs, request.arguments, strict=True):
            known = self._histories[env]
            seeded_at.append(known.seeded_at)
            known.ask(self._journal.time, request, argument)
            if request.method in ("seed", "seed_rows"):
                # A batch is not as good as new if some of its rows continue.
                is_whole = is_certain(None, argument)
                known.seeded_at = (
                    self._journal.numbers(known.rows) if is_whole else None
                )
            elif request.method == "set_state":
                self._states[env] = argument
        self._asked[worker] = request, seeded_at

    def replied(self, worker: int, results: Sequence[Any]) -> None:
        """Marks the open question of a worker as answered."""
        if self._plans[worker]:
            self._judge(worker, results)
        self.abandoned(worker)

    def abandoned(self, worker: int) -> None:
        """Treats the question as answered: the answer comes before any later one."""
        if worker not in self._asked:
            return
        request, _ = self._asked.pop(worker)
        for env, argument in zip(request.envs, request.arguments, strict=True):
            known = self._histories[env]
            if request.method in ("seed", "seed_rows"):
                self._seed_new(known)
            elif request.method == "set_state":
                self._forget(known, "it has been set to a state since")
            elif may_change(request.method, argument):
                self._forget(known, f"call({argument[0]!r}) may have changed it since")

    def _seed_new(self, known: EnvHistory) -> None:
        """Makes an anchor certain, because its environment was seeded before moving."""
        new = known.new
        if known.seeded_at is None or new is None or new.is_certain:
            return
        if self._is_unmoved(known, new.numbers):
            known.make_certain(self._here(known))

    def _withdraw(self, worker: int) -> None:
        """Forgets the open question of a worker that has ended."""
        if worker not in self._asked:
            return
        request, seeded_at = self._asked.pop(worker)
        for env, before in zip(request.envs, seeded_at, strict=True):
            known = self._histories[env]
            known.seeded_at = before
            known.withdraw(request)

    def restored(self) -> None:
        """Makes the restored states the environments' anchors."""
        for env, (state, ended) in self._states.items():
            known = self._histories[env]
            flags = tuple(bool(one) for one in ended)
            anchor = self._here(known, state, flags)
            known.set_state(anchor)
            self._states_to_ask.set_anchor(known.rows, anchor.numbers)
        self._states.clear()

    def raised(self, env: int) -> None:
        """Forgets the anchors of an environment that raised."""
        self._forget(self._histories[env], "it has raised an error since")

    def _forget(self, known: EnvHistory, why: str) -> None:
        known.forget(why)
        self._states_to_ask.hurry()

    # Lost workers.

    def lost(self, worker: int, requests: dict[int, int]) -> set[int]:
        """Plans how a lost worker's environments continue; holds their requests."""
        rows = self._rows
        self._withdraw(worker)
        was_replaying, self._plans[worker] = bool(self._plans[worker]), {}
        self._ends[worker] = self._ends[worker] + 1 if was_replaying else 0
        guilty = self._guilty(requests)
        for row in range(*rows.layout.blocks[worker]):
            if row in rows.resumed:
                requests[row] = rows.drop_held(row)
        kept: set[int] = set()
        for env in self._pool.workers.envs_of(worker):
            known = self._histories[env]
            # The reason was logged when never_replayed was set.
            if known.never_replayed or any(map(rows.is_special, known.rows)):
                continue
            plan = self._plan(known, self._ends[worker], env in guilty)
            if isinstance(plan, str):
                _warn(env, plan)
                continue
            self._plans[worker][env] = plan
            kept.update(known.rows)
            for row in known.rows:
                if row in requests:
                    rows.hold(row, requests.pop(row))
        self._publish_plans()
        return kept

    def given_up(self, worker: int) -> None:
        """Drops the plans for a worker that is lost for good."""
        self._plans[worker] = {}
        self._publish_plans()

    def _publish_plans(self) -> None:
        self._pool.workers.continuing = frozenset(
            env for plans in self._plans for env in plans
        )

    def _guilty(self, requests: dict[int, int]) -> set[int]:
        """Returns environments with a request that killed their worker twice."""
        suspects = list(requests)[:1] if self._keeps_answers else list(requests)
        guilty = set()
        for row in suspects:
            known, number = self._history_of(row), int(self._slab.numbers[row])
            if known.killed_by == number:
                guilty.add(known.env)
            known.killed_by = number
        return guilty

    def _plan(self, known: EnvHistory, ends: int, is_guilty: bool) -> ReplayPlan | str:
        """Returns the plan to replay an environment, or why that is impossible."""
        if is_guilty:
            return "the same request has ended its worker again"
        if ends >= _MOST_ENDS:
            return f"its new worker has ended {ends} times before it was back"
        # A new environment without a seed may still be the same, for instance if its
        # constructor seeds it. And before the caller has seen anything, any environment
        # will do.
        begun = self._rows.begun[known.rows.start : known.rows.stop].any()
        if begun and not (known.has_certain_anchor or known.begins_alike):
            return known.no_anchor_because or without_anchor(known)
        seed = self._pool.workers.seeds[known.env]
        return plan_of(known, seed, self._journal, self._policy.max_replay)

    # New workers.

    def started(self, worker: int) -> None:
        """Makes a new worker replay the plans; its other environments are new."""
        plans = self._plans[worker]
        envs = self._pool.workers.envs_of(worker)
        self._begin_anew([env for env in envs if env not in plans])
        if plans:
            steps = sum(plan.length for plan in plans.values())
            self._pool.restore(worker, "replay", plans, steps)

    def _judge(self, worker: int, results: Sequence[Any]) -> None:
        """Continues the environments that are in the same state as the lost ones."""
        plans, self._plans[worker] = self._plans[worker], {}
        self._ends[worker] = 0
        self._publish_plans()
        steps = 0
        others: list[EnvHistory] = []
        for (env, plan), result in zip(plans.items(), results, strict=True):
            known = self._histories[env]
            why = why_it_differs(plan, result, known.rows, self._rows)
            if not why:
                steps += plan.length
                self._recovered[worker] += 1
                continue
            others.append(known)
            if is_certain(plan.state, plan.seed):
                known.never_replayed = True
                _warn(env, why, is_last=True)
            else:
                known.begins_alike = False
                _warn(env, without_anchor(known))
        if good := len(plans) - len(others):
            _LOGGER.info(
                "worker %d: %s continue%s after %s played again",
                worker,
                counted(good, "environment"),
                "s" if good == 1 else "",
                counted(steps, "step"),
            )
        rows = self._rows
        gone = [row for known in others for row in known.rows]
        lost = {row: rows.drop_held(row) for row in gone if row in rows.resumed}
        # After a failed replay an environment is not new, so it is rebuilt.
        rows.set_replaced(gone, lost, REBUILD)


def _warn(env: int, why: str, is_last: bool = False) -> None:
    """Logs why an environment cannot continue."""
    _LOGGER.warning(
        "env %d cannot continue where it was lost, because %s; its episode ends here%s",
        env,
        why,
        ", and wherever it is lost again" * is_last,
    )
