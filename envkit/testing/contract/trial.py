"""`Trial`: makes environments for the checks, plays them, and remembers the outcome."""

from __future__ import annotations

import contextlib
import copy
import functools
import random
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from envkit import nest
from envkit.autoreset import AutoReset
from envkit.specs.array_spec import BoundedArraySpec, is_continuous
from envkit.specs.sampling import sample_spec_nest
from envkit.testing.contract.findings import Skipped
from envkit.testing.contract.recording import BEGINS, Recording, first_difference
from envkit.time_step import StepType, TimeStep
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
Actor: TypeAlias = Callable[[TimeStep], NestedArray]

# How many episodes every row ends in the recording that most checks look at, and how
# many steps it has at least: enough to see what the second autoreset does.
_EPISODES = 3
_FEWEST_STEPS = 30
# How long two environments are compared at most, and where no episode ends.
_LONGEST_COMPARISON = 200
_ENDLESS_COMPARISON = 60
# How many actions are drawn at once.
_BLOCK = 32


class Move(NamedTuple):
    """One call of a game: what was called with which action, and what it returned.

    Where a batch keeps another order of episodes than `NEXT_STEP`, the episodes after a
    `LAST` begin with a call of their own, `BEGINS`, in which no other row moves.
    """

    call: str
    action: NestedArray
    result: Any


class Trial:
    """One examination of a constructor: everything the checks share.

    Every environment it makes is closed when the check that asked for it is over; one
    of which a process may hold one at a time, when the next is made.
    """

    def __init__(
        self,
        make_env: Callable[[], Any],
        *,
        steps: int,
        seed: int,
        action_fn: ActionFn | None = None,
    ) -> None:
        """Keeps the constructor and the options of `check_environment`."""
        self._make_env = make_env
        self._action_fn = action_fn
        self._open: list[Any] = []
        self._one_at_a_time = False
        self.steps = steps
        self.seed = seed

    def make(self) -> Any:
        """Makes an environment as the user's constructor leaves it.

        A check that holds another one goes on with both, after `need_company`.
        """
        if self._one_at_a_time:
            self.close_all()
        env = self._make_env()
        self._one_at_a_time = getattr(env, "one_per_process", False) is True
        self._open.append(env)
        return env

    def look_ahead(self) -> None:
        """Finds out what checks ask for while they hold an environment.

        Environments are made for that, which would close the one that is held, where a
        process may hold one only. What goes wrong here is for a check to say.
        """
        for fact in ("order", "rows", "repeats_last", "time_step_spec", "main"):
            with contextlib.suppress(Exception):
                getattr(self, fact)
            # The first environment that is made says whether it is alone.
            if not self._one_at_a_time:
                return

    @property
    def has_company(self) -> bool:
        """Whether a process may hold two of these environments."""
        return not self._one_at_a_time

    def need_company(self) -> None:
        """Skips the check if a process may hold one environment only."""
        if not self.has_company:
            raise Skipped("a process may hold one such environment (one_per_process)")

    def new(self) -> Any:
        """Makes an environment and seeds it if it can be seeded.

        Two of them should behave alike.
        """
        env = self.make()
        self.seed_if_possible(env)
        return env

    def seed_if_possible(self, env: Any) -> None:
        """Seeds an environment; whether that fails is for another check to say."""
        with contextlib.suppress(Exception):
            env.seed(self.seed)

    def close_all(self) -> None:
        """Closes what was made; whether that fails is for the check `close` to say."""
        while self._open:
            with contextlib.suppress(Exception):
                self._open.pop().close()

    @functools.cached_property
    def name(self) -> str:
        """What the environment is called in texts."""
        env = self.make()
        return (env if isinstance(env, type) else type(env)).__name__

    @functools.cached_property
    def order(self) -> AutoReset:
        """When the episode after a `LAST` begins."""
        return AutoReset.kept_by(self.make())

    @functools.cached_property
    def rows(self) -> int | None:
        """How many rows a batch has; `None` for a single environment."""
        env = self.make()
        return int(env.batch_size) if env.batched else None

    @property
    def dims(self) -> tuple[int, ...]:
        """The dimensions that arrays have in front of their specs' own."""
        return () if self.rows is None else (self.rows,)

    @functools.cached_property
    def repeats_last(self) -> bool:
        """Whether a `LAST` may be followed by another one, which only pads."""
        return getattr(self.make(), "repeats_last", False) is True

    def need_batch(self) -> int:
        """Returns the number of rows, or skips the check if there are none."""
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
            # Some checks write into actions; the function may return one it keeps.
            return lambda time_step: copy.deepcopy(action_fn(time_step, rng))
        spec = nest.map_structure(_moderate, self.action_spec)
        actions = _sampled(spec, rng, self.dims)
        return lambda time_step: next(actions)

    @property
    def chooses_actions(self) -> bool:
        """Whether the user's function chooses the actions."""
        return self._action_fn is not None

    def first_action(self, stream: int = 0) -> NestedArray:
        """Returns an action for a step before any reset."""
        return self.actor(stream)(self.new().reset() if self._action_fn else None)  # type: ignore[arg-type]  # random actions look at nothing

    def play(self, env: Any, actor: Actor, *, begin: bool = True) -> Iterator[Move]:
        """Yields one move after the other, for ever; the first is `reset` if asked."""
        if begin:
            result = env.reset()
            last = self._seen(result)
            yield Move("reset()", None, result)
        else:
            last = self._seen(env.current_time_step())
        begins = BEGINS.get(AutoReset.kept_by(env))
        while True:
            if begins is not None and np.any(ended := _ended(last)):
                result = self.begin_rows(env, ended)
                # Where all of them pad, none has begun.
                if not self.repeats_last or np.any(ended & ~_ended(result)):
                    last = self._seen(result)
                    yield Move(begins, None, result)
            action = actor(last)
            result = env.step(action)
            last = self._seen(result)
            yield Move("step()", action, result)

    def begin_rows(self, env: Any, ended: Array) -> Any:
        """Returns where a batch stands when rows that ended have begun anew."""
        if AutoReset.kept_by(env) is AutoReset.DISABLED:
            return env.reset(ended)
        return env.current_time_step()

    def ready(self, env: Any) -> Any:
        """Returns where an environment stands when all its rows can take a step."""
        current = env.current_time_step()
        ended = _ended(current)
        if self.order is AutoReset.DISABLED and np.any(ended):
            return env.reset(ended)
        return current

    def _seen(self, result: Any) -> Any:
        # Some checks write into results; a policy has to see what was returned.
        return result if self._action_fn is None else copy.deepcopy(result)

    def record(
        self,
        env: Any,
        steps: int | None = None,
        *,
        actor: Actor | None = None,
        begin: bool = True,
        after: Callable[[Move], None] | None = None,
    ) -> Recording:
        """Plays some steps and keeps the answers.

        Args:
            env: The environment to play.
            steps: How many steps; as many as `reference` has unless given.
            actor: The policy; the usual one unless given.
            begin: Whether to reset first.
            after: Called with each move, once its result was copied.
        """
        recording = Recording(self.rows)
        moves = self.play(env, actor or self.actor(), begin=begin)
        count = (self.horizon if steps is None else steps) + begin
        for _, move in zip(range(count), moves, strict=False):
            recording.add(move.call, move.result)
            if after is not None:
                after(move)
        return recording

    @functools.cached_property
    def main(self) -> Recording:
        """The recording that most checks look at.

        It ends when every row has ended some episodes, after `steps` steps, or with
        the first exception or answer that is no time step at all.
        """
        recording = Recording(self.rows)
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
        except Exception as error:
            recording.error = error
        return recording

    @functools.cached_property
    def ends(self) -> list[Array]:
        """For each answer of `main`, which rows of it are `LAST`."""
        main = self.main
        return [main.step_types(i) == StepType.LAST for i in range(len(main))]

    @functools.cached_property
    def horizon(self) -> int:
        """How many steps are compared: past the first end of every row, if near."""
        played = len(self.main) - 1
        seen = np.logical_or.accumulate(self.ends)
        whole = np.flatnonzero(seen.all(axis=1))
        some = np.flatnonzero(seen.any(axis=1))
        wanted = (*(whole[:1] + 20), *(some[:1] + 20), _ENDLESS_COMPARISON)[0]
        return int(min(max(wanted, _FEWEST_STEPS), _LONGEST_COMPARISON, played))

    @functools.cached_property
    def past_end(self) -> int:
        """How many steps it takes to see what follows the first end, however far."""
        some = np.flatnonzero([rows.any() for rows in self.ends])
        wanted = max(self.horizon, *some[:1] + 5, 0)
        return int(min(wanted, len(self.main) - 1))

    @functools.cached_property
    def reference(self) -> Recording:
        """What a new environment does, to compare one that is disturbed with."""
        return self.record(self.new())

    @functools.cached_property
    def repeatable(self) -> bool:
        """Whether two new environments do the same."""
        pairs = zip(self.reference.copies, self.record(self.new()).copies, strict=True)
        return all(first_difference(*pair) is None for pair in pairs)

    def need_repeatable(self) -> None:
        """Skips the check if there is nothing to compare an environment with."""
        if not self.repeatable:
            raise Skipped(
                "two new environments differ, and without seed() nothing can make "
                "them alike"
            )

    def need_constancy(self) -> None:
        """Skips the check if what is shown depends on all that was shown before."""
        if getattr(self.make(), "adapts", False) is True:
            raise Skipped("the environment adapts to what it has seen")

    @functools.cached_property
    def stochastic(self) -> bool:
        """Whether other seeds are seen to make a difference."""
        for seed in range(self.seed + 1, self.seed + 5):
            env = self.make()
            env.seed(seed)
            pairs = zip(self.reference.copies, self.record(env).copies, strict=True)
            if any(first_difference(*pair) is not None for pair in pairs):
                return True
        return False

    def need_end(self) -> None:
        """Skips the check if no episode was seen to end, and a step after it."""
        if not np.any(self.ends[:-1]):
            raise self._no_end()

    def _no_end(self) -> Skipped:
        return Skipped(f"no episode ended in {self.steps} steps", "episodes")

    def walk(self, env: Any, wanted: Callable[[Array], Any]) -> bool:
        """Plays until the step types of all rows are as wanted; false if never."""
        moves = zip(range(self.steps + 1), self.play(env, self.actor()), strict=False)
        return any(
            wanted(np.asarray(move.result.step_type).reshape(-1)) for _, move in moves
        )

    def walk_to_last(self, env: Any) -> None:
        """Plays until an episode has ended, or skips the check if none does."""
        self.need_end()
        if not self.walk(env, lambda step_types: np.any(step_types == StepType.LAST)):
            raise self._no_end()


def _ended(time_step: Any) -> Array:
    ended: Array = np.asarray(time_step.step_type) == StepType.LAST
    return ended


def is_time_step(value: Any) -> bool:
    """Says whether a value is a `TimeStep`, of envkit or of anybody."""
    return (
        isinstance(value, tuple)
        and type(value).__name__ == "TimeStep"
        and getattr(value, "_fields", None) == TimeStep._fields
    )


def _moderate(spec: Any) -> Any:
    """Narrows a float spec without bounds: nobody's dynamics survive 1e38."""
    if not is_continuous(spec):
        return spec
    bounded = BoundedArraySpec.from_spec(spec)
    lowest, highest = np.finfo(spec.dtype).min, np.finfo(spec.dtype).max
    low, high = bounded.minimum, bounded.maximum
    low = np.where(low == lowest, np.minimum(high, 0) - 1, low)
    high = np.where(high == highest, np.maximum(low, 0) + 1, high)
    return bounded.replace(minimum=low, maximum=high)


def _sampled(
    spec: NestedSpec, rng: np.random.Generator, dims: tuple[int, ...]
) -> Iterator[NestedArray]:
    """Draws actions for ever, many at once because one costs nearly as much."""
    structure = nest.Structure(spec)
    while True:
        leaves = structure.flatten(sample_spec_nest(spec, rng, (_BLOCK, *dims)))
        for index in range(_BLOCK):
            # Copies: whoever writes into one action does not touch another.
            yield structure.unflatten([leaf[index, ...].copy() for leaf in leaves])


@contextlib.contextmanager
def undisturbed_globals() -> Iterator[None]:
    """Puts the global random generators back as they were."""
    numpys = np.random.get_state()  # noqa: NPY002  # the global generator is the subject
    pythons = random.getstate()
    try:
        yield
    finally:
        np.random.set_state(numpys)  # noqa: NPY002  # likewise
        random.setstate(pythons)
