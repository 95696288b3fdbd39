"""Gives an environment global random generators of its own: `PrivateRandomness`."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Sequence
from typing import Any

from envkit.base_wrapper import PyEnvironmentBaseWrapper
from envkit.extend import DirectRow, WrapperInternals, WrapperState, as_environment
from envkit.provenance import record_seed
from envkit.registry import constructor
from envkit.seeding import checked_seeds
from envkit.time_step import StepType, TimeStep
from envkit.types import Array, NestedArray, Seed
from envkit.wrappers.private_generators import PrivateGenerators, checked_generators
from envkit.wrappers.randomness import Branch, branched

__all__ = ["PrivateRandomness"]

_LAST = StepType.LAST
# If a subclass overrides none of these, a worker may step the environment directly.
_STEPPING = (
    "step",
    "_step",
    "_act",
    "reset",
    "_reset",
    "_see",
    "_begin_with_seed",
    "should_reset",
    "get_info",
)


class _PrivateInternals(WrapperInternals):
    """Saves the generators, and surrounds the calls that make no time steps."""

    def direct_row(self, env: Any) -> DirectRow | None:
        if not self.are_own(env, *_STEPPING):
            return None
        row = self.inner_direct_row(env)
        if row is not None:
            row.surround(env, env._generators.around, begin=env._begin_with_seed)
        return row

    def hand_options(self, env: Any, options: Any, rows: Array | None) -> None:
        env._generators.call(super().hand_options, env, options, rows)

    def save(self, env: Any) -> Any:
        return {"generators": env._generators.save(), "first": env._first}

    def restore(self, env: Any, saved: Any) -> None:
        env._generators.restore(saved["generators"])
        env._first = saved["first"]

    def fits(self, env: Any, saved: Any) -> bool:
        names: tuple[str, ...] = env.generators
        return tuple(saved["generators"]) == names


class PrivateRandomness(PyEnvironmentBaseWrapper):
    """Gives a single environment its own global random generators.

    Some libraries draw from the generators that a whole process shares: the functions
    of `random` and `np.random`, and PyTorch's. Then a seed does not determine an
    episode, because everything else in the process draws from them too: the other
    environments of a worker, and your program. The wrapper puts the environment's own
    states into these generators for every call of the environment, and takes them out
    afterwards, even if the call raises. Equal seeds then give equal streams, whatever
    the number of environments in a worker.

    - `seed(s)` seeds the generators, and also the environment if it can be seeded.
      Without a seed, they begin with fresh entropy, so environments of one worker
      differ.
    - Infos and pictures draw too, but leave the numbers of later steps as they are.
    - States include the generators, so `set_state`, checkpoints and recovery continue
      with the same numbers.
    - Put it directly around the environment, inside wrappers with threads or
      processes, such as `StandbyEnvironment`.
    - Threads of one process wait for each other's calls, because there is only one
      generator. Use worker processes if environments compute or wait for long. A
      thread of your own that draws during a call gets the environment's numbers.
    - Generators that a library has made for itself at import, such as
      `np.random.default_rng()`, stay shared; `check_environment` finds them. So do
      threads that the environment starts.

    `make(target, private_randomness=True)` adds the wrapper.

    Example:
        >>> import random
        >>> import numpy as np
        >>> from envkit import ArraySpec, PyEnvironment, restart, transition
        >>> class Dice(PyEnvironment):
        ...     def observation_spec(self):
        ...         return ArraySpec((), np.int64)
        ...     action_spec = observation_spec
        ...     def _reset(self):
        ...         return restart(np.array(random.randint(1, 6)))
        ...     def _step(self, action):
        ...         return transition(np.array(random.randint(1, 6)), reward=0.0)
        >>> def rolled():
        ...     env = PrivateRandomness(Dice)
        ...     steps = [env.reset(seed=7)]
        ...     steps += [env.step(random.randint(0, 9)) for _ in range(9)]
        ...     return [int(time_step.observation) for time_step in steps]
        >>> rolled() == rolled()
        True
    """

    _envkit = _PrivateInternals()
    _shown = ("generators",)

    def __init__(
        self,
        env: Any,
        generators: Sequence[str] = ("random", "numpy"),
    ) -> None:
        """Wraps an environment, or builds it.

        Args:
            env: The environment, or a constructor of it, which then draws from the
                private generators too: a callable, or a name for `envkit.make`.
            generators: The generators that the environment uses: "random" for the
                functions of Python's `random`, "numpy" for those of `np.random`,
                "torch" for PyTorch's on the CPU. Fewer cost less.

        Raises:
            ValueError: The environment is a batch.
        """
        #: The names of the private generators.
        self.generators = checked_generators(generators)
        self._generators = PrivateGenerators(self.generators)
        # The states that the next episode begins with; `None` continues.
        self._first: dict[str, Any] | None = None
        is_made = not isinstance(env, type) and hasattr(env, "time_step_spec")
        if not is_made and (isinstance(env, str) or callable(env)):
            env = self._generators.call(constructor(env))
        super().__init__(_single(as_environment(env)))

    def seed(self, seed: Seed) -> Any:
        """Seeds the generators, and the environment if it can be seeded.

        Returns:
            What the environment's `seed` returns.
        """
        own = branched(self, checked_seeds(seed, 1), Branch.GLOBALS)
        self._generators.seed(own[0])
        try:
            result = self._generators.call(super().seed, seed)
        except NotImplementedError:  # it has only the generators
            result = None
            record_seed(self, seed)
        # The environment may have seeded them itself.
        self._first = self._generators.save()
        return result

    def _begin_with_seed(self) -> None:
        """Returns the generators to where `seed` left them, for one episode."""
        if self._first is not None:
            self._generators.restore(self._first)
            self._first = None

    def _reset(self) -> TimeStep:
        self._begin_with_seed()
        return self._see(self._generators.call(self._env.reset), None)

    def _step(self, action: NestedArray) -> TimeStep:
        # Hot: called once per step.
        if self._first is not None and self._is_over():
            self._begin_with_seed()
        step, action = self._env.step, self._act(action)
        return self._see(self._generators.call(step, action), None)

    def _is_over(self) -> bool:
        shown = self._current_time_step
        return shown is None or shown.step_type == _LAST

    def get_info(self) -> Any:
        """Returns the environment's info."""
        return self._generators.call(self._env.get_info, keep=False)

    def render(self, mode: str = "rgb_array") -> Any:
        """Returns what the environment renders."""
        return self._generators.call(self._env.render, mode, keep=False)

    def close(self) -> None:
        """Closes the environment."""
        self._generators.call(self._env.close)

    def _get_state(self) -> WrapperState:
        return self._generators.call(super()._get_state)

    def _set_state(self, state: Any) -> None:
        self._generators.call(super()._set_state, state)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            return super().__getattr__(name)
        found = self._generators.call(super().__getattr__, name)
        if not inspect.ismethod(found):
            return found
        return functools.wraps(found)(self._generators.around(found))


def _single(env: Any) -> Any:
    """Returns an environment, or raises if it is a batch."""
    if getattr(env, "batched", False) is True:
        name, size = type(env).__name__, env.batch_size
        raise ValueError(
            f"PrivateRandomness wraps a single environment, and this {name} is a batch "
            f"of {size} rows, which one call moves together. Wrap each environment "
            "before they become a batch: ParallelPyEnvironment([lambda: "
            "PrivateRandomness(make_env)] * 8)."
        )
    return env
