"""Runs an environment of a wrapper in its own process: `ProcessMember`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from envkit.base_wrapper import rows_in_wrapper
from envkit.extend import Internals, hand_options, set_attribute
from envkit.parallel import ProcessPyEnvironment
from envkit.specs.environment_spec import info_spec_of
from envkit.time_step import StepType, TimeStep
from envkit.types import Array, NestedArray

__all__ = ["ProcessMember"]

_STEP_TYPES = {int(one): one for one in (StepType.FIRST, StepType.MID, StepType.LAST)}


class _MemberInternals(Internals):
    """Hands options to the environment in its process."""

    def hand_options(self, env: Any, options: Any, rows: Array | None) -> None:
        env._called("take_options", options)


class ProcessMember(ProcessPyEnvironment):
    """Stands in for an environment that runs in its own process.

    Its states are the environment's, and the environment's methods can be called. It
    must be a single environment, and the wrapper resets it after each `LAST`.
    """

    _envkit: Internals = _MemberInternals(keeps_order=False)

    def __init__(self, make_env: Callable[[], Any]) -> None:
        """Starts the process, and waits until the environment is built."""
        hosted = functools.partial(_Hosted, make_env)
        # `envkit top` lists pools that users made, not parts of environments.
        hosted.is_listed = False  # type: ignore[attr-defined]
        super().__init__(hosted)
        self._has_begun = False
        self.start()

    def _called(self, method: str, *arguments: Any) -> Any:
        return self.call(method, *arguments)()

    @property
    def type_name(self) -> str:
        """The name of the environment's class."""
        return str(self._called("type_name"))

    def info_spec(self) -> dict[str, Any]:
        """Returns the environment's specs of its info."""
        return self._called("info_spec")  # type: ignore[no-any-return]

    def reset(self) -> TimeStep:  # type: ignore[override]  # wrappers pass nothing
        """Begins an episode."""
        self._has_begun = True
        return _typed(super().reset())

    def step(self, action: NestedArray) -> TimeStep:  # type: ignore[override]  # nor here
        """Applies an action."""
        return _typed(super().step(action))

    def get_state(self) -> Any:
        """Returns the environment's state."""
        return self._called("get_state")

    def set_state(self, state: Any) -> None:
        """Restores a state of the environment."""
        if not self._has_begun:  # the pool's first step would reset it
            self.reset()
        self._called("set_state", state)

    def env_is_wrapped(self, wrapper_class: type) -> list[bool]:
        """Returns whether the environment is in a wrapper of this class."""
        return self._called("env_is_wrapped", wrapper_class)  # type: ignore[no-any-return]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(
                f"{type(self).__name__!r} object has no attribute {name!r}"
            )
        is_method, found = self._called("attribute", name)
        return functools.partial(self._called, name) if is_method else found


def _typed(time_step: TimeStep) -> TimeStep:
    step_type = _STEP_TYPES[int(time_step.step_type)]
    return time_step._replace(step_type=step_type)


class _Hosted:
    """Holds the environment in its process."""

    # The worker passes steps after a LAST on, because the wrapper decides when an
    # episode begins, and may have restored a state unknown to the worker.
    repeats_last = True

    def __init__(self, make_env: Callable[[], Any]) -> None:
        self._env = make_env()

    def type_name(self) -> str:
        return type(self._env).__name__

    def info_spec(self) -> dict[str, Any]:
        return info_spec_of(self._env)

    def attribute(self, name: str) -> tuple[bool, Any]:
        """Returns True if a method of this name exists; if not, also the attribute."""
        found = getattr(self._env, name)
        return (True, None) if callable(found) else (False, found)

    def take_options(self, options: Any) -> None:
        hand_options(self._env, options)

    def set_attr(self, name: str, value: Any) -> None:
        set_attribute(self._env, name, value)

    def env_is_wrapped(self, wrapper_class: type) -> list[bool]:
        return rows_in_wrapper(self._env, wrapper_class)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(
                f"{type(self).__name__!r} object has no attribute {name!r}"
            )
        return getattr(self._env, name)
