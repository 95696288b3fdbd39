"""Makes and plays environments for the checks, and keeps recordings: `Trial`."""

from __future__ import annotations

import contextlib
import copy
import functools
import random
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from envkit import nest
from envkit.extend import as_environment, leave_unseen
from envkit.policies import moderate, names_legal_actions, random_actions
from envkit.specs.sampling import sample_spec_nest
from envkit.testing.contract.findings import FAULTS, Skipped
from envkit.testing.contract.recording import BEGINS, Rollout, snapshot
from envkit.time_step import AutoReset, StepType, TimeStep
from envkit.types import Array, NestedArray, NestedSpec

__all__ = [
    "ActionFn",
    "Actor",
    "Move",
    "Trial",
    "is_time_step",
    "undisturbed_globals",
]

ActionFn: TypeAlias = Callable[[TimeStep, np.random.Generator], NestedArray]
# Called with a time step, and the environment that returned it.
Actor: TypeAlias = Callable[[TimeStep, Any], NestedArray]

# How many episodes every row ends in the recording that most checks use, and its fewest
# steps: enough to show the second autoreset.
_EPISODES = 3
_FEWEST_STEPS = 30
# The maximum number of steps to compare, and the usual number if no episode ends.
_LONGEST_COMPARISON = 200
_ENDLESS_COMPARISON = 60
# How many actions are drawn at once.
_BLOCK = 32


class Move(NamedTuple):
    """Records one call of a game: its action, and the time step that it returned.

    In a batch with an order other than `NEXT_STEP`, the episodes after a `LAST` begin
    with a call of their own, `BEGINS`, in which no other row moves.
    """

    call: str
    action: NestedArray
    result: Any


class Trial:
    """Examines one constructor, and holds everything the checks share.

    Each environment is closed at the end of the check that made it; if a process may
    hold only one at a time, it is closed before the next is made.
    """

    def __init__(
        self,
        make_env: Callable[[], Any],
        *,
        called: str,
        steps: int,
        seed: int,
        action_fn: ActionFn | None = None,
    ) -> None:
        self._make_env = make_env
        self._called = called
        self._action_fn = action_fn
        self._open: list[Any] = []
        self._one_at_a_time = False
        # What the user's constructor returned last, before envkit wrapped it.
        self.made: Any = None
        self.steps = steps
        self.seed = seed
        self._look_ahead()

    def make(self) -> Any:
        """Makes an environment with the user's constructor, and changes nothing.

        A check that calls this while it holds another environment calls `need_company`
        first.
        """
        if self._one_at_a_time:
            self.close_all()
        self.made = made = self._make_env()
        env = as_environment(made)
        self._one_at_a_time = getattr(env, "one_per_process", False) is True
        self._open.append(env)
        leave_unseen(env)  # the checks describe faults better
        return env

    def _look_ahead(self) -> None:
        """Computes facts that checks need while they hold an environment.

        They are computed early if a process may hold only one environment, because
        making another would close it. Exceptions are left for a check to report.
        """
        facts = (
            "order",
            "rows",
            "repeats_last",
            "continues",
            "time_step_spec",
            "legality",
            "main",
        )
        for fact in facts:
            with contextlib.suppress(*FAULTS):
                getattr(self, fact)
            # The first environment has told whether a process may hold two.
            if not self._one_at_a_time:
                break
        self.close_all()

    @property
    def has_company(self) -> bool:
        """True if a process may hold two of these environments."""
        return not self._one_at_a_time

    def need_company(self) -> None:
        """Skips the check if a process may hold only one environment."""
        if not self.has_company:
            raise Skipped("a process may hold one such environment (one_per_process)")

    def new(self) -> Any:
        """Makes an environment, and seeds it if possible, so that two agree."""
        env = self.make()
        self.seed_if_possible(env)
        return env

    def seed_if_possible(self, env: Any) -> None:
        """Seeds an environment; exceptions are left for another check to report."""
        with contextlib.suppress(*FAULTS):
            env.seed(self.seed)

    def close_all(self) -> None:
        """Closes all environments; the check `close` reports exceptions."""
        while self._open:
            with contextlib.suppress(*FAULTS):
                self._open.pop().close()

    def end_check(self, *, failed: bool) -> None:
        """Closes the environments of one check."""
        self.close_all()

    @property
    def name(self) -> str:
        """The name of the environment's class, or of the constructor if that raises."""
        try:
            env = self.make()
        except FAULTS:
            return self._called
        self.close_all()
        return (env if isinstance(env, type) else type(env)).__name__

    @functools.cached_property
    def order(self) -> AutoReset:
        """The autoreset order, even if no `FIRST` ever follows a `LAST`."""
        return self._order_of(self.make())

    @staticmethod
    def _order_of(env: Any) -> AutoReset:
        if getattr(env, "continues_after_last", False) is True:
            return AutoReset.NEXT_STEP
        return AutoReset.kept_by(env)

    @functools.cached_property
    def rows(self) -> int | None:
        """The number of rows of a batch; `None` for a single environment."""
        env = self.make()
        return int(env.batch_size) if env.batched else None

    @property
    def dims(self) -> tuple[int, ...]:
        """The leading dimensions of arrays, before their specs' own."""
        return () if self.rows is None else (self.rows,)

    @functools.cached_property
    def repeats_last(self) -> bool:
        """True if a `LAST` may be repeated as padding."""
        return getattr(self.make(), "repeats_last", False) is True

    @functools.cached_property
    def continues(self) -> bool:
        """True if no `FIRST` follows a `LAST`."""
        return getattr(self.make(), "continues_after_last", False) is True

    def need_batch(self) -> int:
        """Returns the number of rows; skips the check if there is no batch."""
        if self.rows is None:
            raise Skipped("the environment is not batched")
        return self.rows

    @functools.cached_property
    def action_spec(self) -> NestedSpec:
        """The specs of one row's action."""
        return self.make().action_spec()

    @functools.cached_property
    def time_step_spec(self) -> Any:
        """The specs of one row's time step."""
        return self.make().time_step_spec()

    def actor(self, stream: int = 0) -> Actor:
        """Returns a policy: equal streams give equal actions for equal time steps."""
        rng = np.random.default_rng([self.seed, stream])
        if self._action_fn is not None:
            action_fn = self._action_fn
            # A copy, because some checks write into actions.
            return lambda time_step, env: copy.deepcopy(action_fn(time_step, rng))
        if self.legality:
            policies: list[Any] = []

            def act(time_step: TimeStep, env: Any) -> NestedArray:
                if not policies:
                    policies.append(random_actions(env, rng))
                (policy,) = policies
                policy.env = env if self.legality == "info" else None
                return policy(time_step)

            return act
        spec = nest.map_structure(moderate, self.action_spec)
        actions = _sampled(spec, rng, self.dims)
        return lambda time_step, env: next(actions)

    @functools.cached_property
    def legality(self) -> str:
        """Where legal actions are named: in the observation, the info, or nowhere."""
        env = self.make()
        if names_legal_actions(env.observation_spec()):
            return "observation"
        with contextlib.suppress(*FAULTS):
            env.reset()
            if names_legal_actions(env.get_info()):
                return "info"
        return ""

    @property
    def has_policy(self) -> bool:
        """True if a function of the user chooses the actions."""
        return self._action_fn is not None

    @property
    def chooses_actions(self) -> bool:
        """True if actions depend on time steps: legal ones, or those of a user."""
        return self.has_policy or bool(self.legality)

    def first_action(self, stream: int = 0) -> NestedArray:
        """Returns an action for a step before any reset."""
        env = self.new()
        return self.actor(stream)(env.reset() if self.chooses_actions else None, env)  # type: ignore[arg-type]  # other actions do not depend on it

    def play(self, env: Any, actor: Actor, *, begin: bool = True) -> Iterator[Move]:
        """Yields moves without end; the first is `reset` if requested."""
        if begin:
            result = env.reset()
            last = self._seen(result)
            yield Move("reset()", None, result)
        else:
            last = self._seen(env.current_time_step())
        begins = BEGINS.get(self._order_of(env))
        while True:
            if begins is not None and np.any(ended := _ended(last)):
                result = self.begin_rows(env, ended)
                # If all of these rows pad, none of them has begun an episode.
                if not self.repeats_last or np.any(ended & ~_ended(result)):
                    last = self._seen(result)
                    yield Move(begins, None, result)
            action = actor(last, env)
            result = env.step(action)
            last = self._seen(result)
            yield Move("step()", action, result)

    def begin_rows(self, env: Any, ended: Array) -> Any:
        """Returns the current time step, after ended rows have begun again."""
        if AutoReset.kept_by(env) is AutoReset.DISABLED:
            return env.reset(ended)
        return env.current_time_step()

    def ready(self, env: Any) -> Any:
        """Returns the current time step once all rows can take a step."""
        current = env.current_time_step()
        ended = _ended(current)
        if self.order is AutoReset.DISABLED and np.any(ended):
            return env.reset(ended)
        return current

    def _seen(self, result: Any) -> Any:
        # A copy, because some checks write into results, which a policy must not see.
        return copy.deepcopy(result) if self.chooses_actions else result

    def record(
        self,
        env: Any,
        steps: int | None = None,
        *,
        actor: Actor | None = None,
        begin: bool = True,
        after: Callable[[Move], None] | None = None,
    ) -> Rollout:
        """Plays some steps and keeps the time steps.

        Args:
            env: The environment to play.
            steps: The number of steps; by default `reference`'s.
            actor: The policy; by default the usual one.
            begin: Whether to reset first.
            after: Called with each move, once its result was copied.
        """
        recording = Rollout(self.rows)
        moves = self.play(env, actor or self.actor(), begin=begin)
        count = (self.horizon if steps is None else steps) + begin
        for _, move in zip(range(count), moves, strict=False):
            recording.add(move.call, move.result)
            if self.has_policy:
                recording.actions.append(snapshot(move.action))
            if after is not None:
                after(move)
        return recording

    @functools.cached_property
    def main(self) -> Rollout:
        """The recording that most checks use.

        It ends when every row has ended some episodes, after `steps` steps, or with the
        first exception or value that is not a time step.
        """
        recording = Rollout(self.rows)
        ended: Any = 0
        actor = self.actor()
        env = self.new()
        try:
            for move in self.play(env, actor):
                recording.add(move.call, move.result)
                if not is_time_step(move.result) or len(recording) > self.steps:
                    break
                ended = ended + (recording.step_types(-1) == StepType.LAST)
                if len(recording) > _FEWEST_STEPS and np.all(ended >= _EPISODES):
                    break
            env.reset()
        except FAULTS as error:
            recording.error = error
        return recording

    @functools.cached_property
    def ends(self) -> list[Array]:
        """For each time step of `main`, a mask of the rows that are `LAST`."""
        main = self.main
        return [main.step_types(i) == StepType.LAST for i in range(len(main))]

    @functools.cached_property
    def horizon(self) -> int:
        """The number of steps to compare: past the first end of every row, if near."""
        played = len(self.main) - 1
        seen = np.logical_or.accumulate(self.ends)
        whole = np.flatnonzero(seen.all(axis=1))
        some = np.flatnonzero(seen.any(axis=1))
        wanted = (*(whole[:1] + 20), *(some[:1] + 20), _ENDLESS_COMPARISON)[0]
        return int(min(max(wanted, _FEWEST_STEPS), _LONGEST_COMPARISON, played))

    @functools.cached_property
    def past_end(self) -> int:
        """The number of steps that show what follows the first end, however far."""
        some = np.flatnonzero([rows.any() for rows in self.ends])
        wanted = max(self.horizon, *some[:1] + 5, 0)
        return int(min(wanted, len(self.main) - 1))

    @functools.cached_property
    def reference(self) -> Rollout:
        """The recording of a new environment, to compare disturbed ones with."""
        return self.record(self.new())

    @functools.cached_property
    def repeatable(self) -> bool:
        """True if two new environments return the same stream."""
        return self.reference.equals(self.record(self.new()))

    def need_repeatable(self) -> None:
        """Skips the check if no two environments can be compared."""
        if not self.repeatable:
            raise Skipped(
                "two new environments differ, and without seed() nothing can make "
                "them alike"
            )

    def need_constancy(self) -> None:
        """Skips the check if time steps depend on all earlier ones."""
        if getattr(self.make(), "adapts", False) is True:
            raise Skipped("the environment adapts to what it has seen")

    @functools.cached_property
    def stochastic(self) -> bool:
        """True if some other seed makes a difference."""
        for seed in range(self.seed + 1, self.seed + 5):
            env = self.make()
            env.seed(seed)
            if not self.reference.equals(self.record(env)):
                return True
        return False

    def need_end(self) -> None:
        """Skips the check unless an episode of `main` ends with a step after it."""
        if not np.any(self.ends[:-1]):
            raise self._no_end()

    def _no_end(self) -> Skipped:
        return Skipped(f"no episode ended in {self.steps} steps", "episodes")

    def walk(self, env: Any, condition: Callable[[Array], Any]) -> bool:
        """Plays until the step types meet a condition; False if they never do."""
        moves = zip(range(self.steps + 1), self.play(env, self.actor()), strict=False)
        return any(
            condition(np.asarray(move.result.step_type).reshape(-1))
            for _, move in moves
        )

    def walk_to_last(self, env: Any) -> None:
        """Plays until an episode has ended; skips the check if none does."""
        self.need_end()
        if not self.walk(env, lambda step_types: np.any(step_types == StepType.LAST)):
            raise self._no_end()


def _ended(time_step: Any) -> Array:
    ended: Array = np.asarray(time_step.step_type) == StepType.LAST
    return ended


def is_time_step(value: Any) -> bool:
    """Returns True for a `TimeStep` of envkit or of another library."""
    return (
        isinstance(value, tuple)
        and type(value).__name__ == "TimeStep"
        and getattr(value, "_fields", None) == TimeStep._fields
    )


def _sampled(
    spec: NestedSpec, rng: np.random.Generator, dims: tuple[int, ...]
) -> Iterator[NestedArray]:
    """Yields actions without end; draws many at once for the cost of one."""
    structure = nest.Structure(spec)
    while True:
        leaves = structure.flatten(sample_spec_nest(spec, rng, (_BLOCK, *dims)))
        for index in range(_BLOCK):
            # Copies, because a write into one action must not reach another.
            yield structure.unflatten([leaf[index, ...].copy() for leaf in leaves])


@contextlib.contextmanager
def undisturbed_globals() -> Iterator[None]:
    """Restores the global random generators afterwards."""
    numpys = np.random.get_state()  # noqa: NPY002  # the global generator is the subject
    pythons = random.getstate()
    try:
        yield
    finally:
        np.random.set_state(numpys)  # noqa: NPY002  # likewise
        random.setstate(pythons)
