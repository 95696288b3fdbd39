"""`PyEnvironmentBaseWrapper`, an environment around another one, and `wrap`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, NoReturn

from envkit._internal.direct_row import DirectRow
from envkit._internal.internals import Internals, has_internals, own_internals
from envkit._internal.missing_names import explains_words
from envkit._internal.objects import as_environment, is_environment, no_environment
from envkit._internal.reset_order import adopt_order_of
from envkit._internal.resets import keep_seed
from envkit._internal.text import listed
from envkit.async_environment import AsyncEnvironment
from envkit.batches import hand_options
from envkit.errors import EnvkitError
from envkit.provenance import (
    MadeBy,
    plain_recipe,
    recipe_of,
    record_seed,
    wrapper_recipe,
)
from envkit.py_environment import InnerSpecs, PyEnvironment
from envkit.specs.environment_spec import info_spec_of
from envkit.specs.validation import describe
from envkit.time_step import TimeStep
from envkit.types import Array, NestedArray, Seed

__all__ = [
    "PyEnvironmentBaseWrapper",
    "WrapperInternals",
    "WrapperState",
    "rendered",
    "rows_in_wrapper",
    "set_attribute",
    "wrap",
]


class WrapperState(NamedTuple):
    """The state of a wrapper.

    Attributes:
        wrapper: The wrapper's class, by name.
        environment: What the environment's `get_state` returned.
        own: The wrapper's own state.
    """

    wrapper: str
    environment: Any
    own: Any


class WrapperInternals(Internals):
    """envkit's internals of an environment that has another one inside."""

    wraps = True

    def recipe(self, env: Any) -> dict[str, Any]:
        """Returns the environment's recipe, with the wrapper as a layer of it."""
        shown = {name: getattr(env, name, None) for name in env._shown}
        layered = wrapper_recipe(env, recipe_of(env._env), shown)
        if self.origin is not None:
            return {**plain_recipe(env), "seed": layered["seed"]}
        return layered

    def inside(self, env: Any) -> list[Any]:
        """Returns the environment that is wrapped."""
        return [env._env]

    def made_by(self, env: Any) -> MadeBy | None:
        """Returns `None`, unless the wrapper has a version of its own."""
        # The wrapped environment's state is in the wrapper's, and has the versions.
        own = super().made_by(env)
        return None if own is None or own.id is None else own

    def padding_rows(self, env: Any) -> Array | None:
        """Returns the rows that the environment pads."""
        pads = env.repeats_last and has_internals(env._env)
        return env._env._envkit.padding_rows(env._env) if pads else None

    def hand_options(self, env: Any, options: Any, rows: Array | None) -> None:
        """Keeps options if the wrapper takes them, and hands them on."""
        if not self.accepts_options(env, rows):
            hand_options(env._env, options, rows)
            return
        own_internals(env).next_options = options
        # The wrapper takes them, and the environment need not.
        with contextlib.suppress(NotImplementedError):
            hand_options(env._env, options, rows)

    def check_resets_rows(self, env: Any) -> None:
        """Refuses a batch whose rows cannot be reset one by one; for constructors."""
        if env.batched and not _says(env._env, "resets_rows"):
            ability = "begin episodes in some rows alone"
            _refuse_batch(env, ability, "_reset_rows(mask)")

    def check_holds_rows(self, env: Any) -> None:
        """Refuses a batch whose rows cannot be held; for constructors."""
        if env.batched and not _says(env._env, "holds_rows"):
            ability = "leave rows where they are while others step"
            _refuse_batch(env, ability, "_step_rows(action, stepping, beginning)")

    def inner_direct_row(self, env: Any) -> DirectRow | None:
        """Returns the wrapped environment's `DirectRow`, if it offers one."""
        inner = env._env
        return inner._envkit.direct_row(inner) if has_internals(inner) else None

    def save(self, env: Any) -> Any:
        """Returns what the wrapper keeps between steps."""
        return {name: getattr(env, name) for name in env._kept}

    def restore(self, env: Any, saved: Any) -> None:
        """Restores what `save` returned; the object then belongs to the wrapper."""
        for name in env._kept:
            setattr(env, name, saved[name])

    def fits(self, env: Any, saved: Any) -> bool:
        """Returns True if a wrapper with these arguments returned it from `save`."""
        return True


@explains_words
class PyEnvironmentBaseWrapper(InnerSpecs, PyEnvironment):
    """Forwards everything to the environment it wraps, single or batched.

    A subclass overrides one or both of these, and the specs that change with them:

    - `_act(action)` returns the action for the environment;
    - `_see(time_step, rows)` returns the time step for the user.

    Both get whole arrays; those of a batch begin with the dimension of rows. `rows` is
    the mask of the rows that have moved, or `None` for all; the values that `_see`
    returns for other rows are ignored. `_dims` are the dimensions in front of every
    array: `()`, or `(batch_size,)`. A subclass that keeps an array between steps gives
    it these dimensions, restarts the rows of each `FIRST`, and lists the attribute in
    `_kept`, so that states hold it.

    Wrappers written for TF-Agents override `_reset` and `_step`, and work too.

    A wrapper also has the public attributes of its environment.

    Example:
        >>> import numpy as np
        >>> from envkit import BoundedArraySpec
        >>> from envkit.envs import Catch
        >>> class Mirrored(PyEnvironmentBaseWrapper):
        ...     def _act(self, action):
        ...         return 2 - np.asarray(action)
        ...     def _see(self, time_step, rows):
        ...         mirrored = time_step.observation[..., ::-1].copy()
        ...         return time_step._replace(observation=mirrored)
        >>> env = Mirrored(Catch(batch_size=2, seed=1))
        >>> env
        Mirrored(Catch(batch_size=2))
        >>> env.reset().observation.shape
        (2, 10, 5)
    """

    # The names of the attributes on which later steps depend.
    _kept: ClassVar[tuple[str, ...]] = ()
    # The names of the public attributes that `repr` shows.
    _shown: ClassVar[tuple[str, ...]] = ()
    _envkit = WrapperInternals()

    def __init__(self, env: Any, handle_auto_reset: bool = False) -> None:
        """Wraps an environment; closing the wrapper closes it.

        Args:
            env: The environment, of envkit or of another library.
            handle_auto_reset: Whether the wrapper itself begins a new episode after a
                `LAST`, for environments that don't. It has no effect on environments
                that repeat a `LAST` as padding.
        """
        name = type(self).__name__
        if isinstance(env, AsyncEnvironment):
            raise TypeError(
                f"{name} wraps an environment in lockstep, and {type(env).__name__} is "
                "asynchronous. Wrap the environments in it, or Blocking(env)."
            )
        env = as_environment(env)
        if not is_environment(env):
            raise TypeError(f"{name} wraps an environment, not {no_environment(env)}")
        self._env = env
        if getattr(env, "batched", False) is True:
            adopt_order_of(self, env)
        # A reset after the first LAST would cut off the padding.
        super().__init__(handle_auto_reset and not self.repeats_last)
        # The dimensions in front of every array: none, or that of the rows.
        self._dims: tuple[int, ...] = (self.batch_size,) if self.batched else ()  # type: ignore[assignment]  # a batch has a size

    def __getattr__(self, name: str) -> Any:
        # Private names are not forwarded: copying and unpickling a wrapper asks for
        # some before there is an environment.
        if name.startswith("_"):
            raise AttributeError(
                f"{type(self).__name__!r} object has no attribute {name!r}",
                name=name,
                obj=self,
            )
        try:
            found = getattr(self._env, name)
        except AttributeError:
            # Its own property has raised, or its own class explains the name.
            if name in vars(PyEnvironmentBaseWrapper) or hasattr(type(self), name):
                return object.__getattribute__(self, name)
            raise
        if name in ("save", "resize") and hasattr(found, "is_not_forwarded"):
            why = found.is_not_forwarded
            raise AttributeError(
                f"{type(self).__name__!r} is around a pool, and {why}",
                name=name,
                obj=self,
            )
        return found

    def __repr__(self) -> str:
        shown = "".join(f", {name}={getattr(self, name)!r}" for name in self._shown)
        return f"{type(self).__name__}({_text_of(self._env)}{shown})"

    def wrapped_env(self) -> Any:
        """Returns the environment."""
        return self._env

    @property
    def unwrapped(self) -> Any:
        """The environment inside all wrappers."""
        return getattr(self._env, "unwrapped", self._env)

    @property
    def batched(self) -> bool:
        """Whether the environment is a batch."""
        return getattr(self._env, "batched", False) is True

    @property
    def batch_size(self) -> int | None:
        """The number of rows; `None` for a single environment."""
        return getattr(self._env, "batch_size", None)

    @property
    def resets_rows(self) -> bool:
        """Whether `reset` takes a mask of rows."""
        return self._envkit.methods.resets_rows and _says(self._env, "resets_rows")

    @property
    def holds_rows(self) -> bool:
        """Whether `step` takes a mask of rows."""
        return self._envkit.methods.moves_rows and _says(self._env, "holds_rows")

    @property
    def seeds_rows(self) -> bool:
        """Whether `reset` takes seeds for some of the rows."""
        return self._envkit.methods.seeds_rows and _says(self._env, "seeds_rows")

    @property
    def repeats_last(self) -> bool:
        """Whether another `LAST` may follow a `LAST`, as padding."""
        return _says(self._env, "repeats_last")

    @property
    def continues_after_last(self) -> bool:
        """Whether the step after a `LAST` uses its action: no `FIRST` follows."""
        return _says(self._env, "continues_after_last")

    @property
    def adapts(self) -> bool:
        """Whether its output depends on everything before."""
        return _says(self._env, "adapts")

    @property
    def one_per_process(self) -> bool:
        """Whether a process may hold only one such environment at a time."""
        return _says(self._env, "one_per_process")

    def info_spec(self) -> dict[str, Any]:
        """Returns the specs of the environment's declared info."""
        return info_spec_of(self._env)

    def get_info(self) -> Any:
        """Returns the environment's info."""
        return self._env.get_info()

    def seed(self, seed: Seed) -> Any:
        """Seeds the environment."""
        result = self._env.seed(seed)
        record_seed(self, seed)  # The environment has taken it.
        if "seed" in self._envkit.methods.reset_takes:
            keep_seed(self, seed)
        return result

    def render(self, mode: str = "rgb_array") -> Any:
        """Returns what the environment renders."""
        return self._env.render(mode)

    def close(self) -> None:
        """Closes the environment."""
        self._env.close()

    def _act(self, action: NestedArray) -> NestedArray:
        """Returns the action for the environment; called once a step."""
        return action

    def _see(self, time_step: TimeStep, rows: Array | None) -> TimeStep:
        """Returns the time step for the user.

        Args:
            time_step: The environment's time step; don't change it.
            rows: The mask of the rows that have moved; `None` if all have, as always
                for a single environment.
        """
        return time_step

    def _seed_rows(self, seeds: list[int | None]) -> None:
        self._env._envkit.seed_rows(self._env, seeds)

    def _reset(self) -> TimeStep:
        return self._see(self._env.reset(), None)

    def _reset_rows(self, mask: Array) -> TimeStep:
        if not self._envkit.methods.resets_rows:
            _refuse_unknown_rows(self, "_reset", "_reset_rows(mask)")
        return self._see(self._env.reset(mask), mask)

    def _step(self, action: NestedArray) -> TimeStep:
        return self._see(self._env.step(self._act(action)), None)

    def _step_rows(
        self, action: NestedArray, stepping: Array, beginning: Array
    ) -> TimeStep:
        methods = self._envkit.methods
        if not methods.moves_rows and (stepping | beginning).all():
            # _step() knows nothing of rows, but none is held.
            return super()._step_rows(action, stepping, beginning)
        if not methods.moves_rows:
            hook = "_step_rows(action, stepping, beginning)"
            _refuse_unknown_rows(self, "_step", hook)
        if not methods.resets_rows and beginning.any():
            _refuse_unknown_rows(self, "_reset", "_reset_rows(mask)")
        time_step = self._env.step_rows(self._act(action), stepping, beginning)
        return self._see(time_step, stepping | beginning)

    def _get_state(self) -> WrapperState:
        return WrapperState(
            type(self).__qualname__, self._env.get_state(), self._envkit.save(self)
        )

    def _set_state(self, state: Any) -> None:
        name = type(self).__qualname__
        if not isinstance(state, WrapperState) or state.wrapper != name:
            of = f"of {state.wrapper}" if isinstance(state, WrapperState) else ""
            raise ValueError(
                f"{name}.set_state() was given the state {of or describe(state)}. A "
                "state fits environments that are wrapped in the same way."
            )
        internals, own = self._envkit, state.own
        saved = internals.save(self) if self._kept else None
        needed = set(self._kept).intersection(saved if isinstance(saved, dict) else ())
        missing = sorted(needed.difference(own if isinstance(own, dict) else ()))
        if missing:
            raise ValueError(
                f"{name}.set_state() was given a state that is broken: it lacks "
                f"{missing[0]!r}. It takes what get_state() returned."
            )
        try:
            fits = internals.fits(self, own)
        except (AttributeError, LookupError, TypeError):  # It lacks something.
            fits = False
        if not fits:
            raise ValueError(
                f"{name}.set_state() was given the state of a {name} made with other "
                "arguments, or of another environment. A state fits environments that "
                "are wrapped in the same way."
            )
        # First, because it may raise, and then nothing must have changed.
        self._env.set_state(state.environment)
        internals.restore(self, own)


def _refuse_unknown_rows(wrapper: Any, whole: str, hook: str) -> NoReturn:
    raise NotImplementedError(
        f"{type(wrapper).__name__} overrides {whole}(), which concerns all rows, "
        f"and cannot know what that means for some of them: override {hook} "
        "too, or _act(action) and _see(time_step, rows) in place of both."
    )


def _refuse_batch(wrapper: Any, ability: str, hook: str) -> NoReturn:
    env = wrapper.wrapped_env()
    is_theirs = not type(env).__module__.startswith("envkit.")
    override = f", or override {hook} in {type(env).__name__}" if is_theirs else ""
    raise ValueError(
        f"{type(wrapper).__name__} cannot wrap {_text_of(env)}: its rows end "
        f"one by one, and it cannot {ability}. Wrap the single environments "
        f"before they become a batch{override}."
    )


def _says(env: Any, name: str) -> bool:
    # An object that only has the methods may return anything.
    return getattr(env, name, False) is True


def _text_of(env: Any) -> str:
    if "__repr__" in {name for cls in type(env).__mro__[:-1] for name in vars(cls)}:
        return repr(env)
    size = getattr(env, "batch_size", None)
    arguments = f"batch_size={size}" if isinstance(size, int) else ""
    return f"{type(env).__name__}({arguments})"


def set_attribute(env: Any, name: str, value: Any) -> None:
    """Sets an attribute on whichever layer of an environment has it.

    A new attribute is set in the outermost wrapper.

    Raises:
        AttributeError: It belongs to an adapted object that cannot be reached.

    Example:
        >>> from envkit.testing import CountingEnv
        >>> from envkit.wrappers import TimeLimit
        >>> env = CountingEnv()
        >>> env.level = 1
        >>> set_attribute(TimeLimit(env, 5), "level", 3)
        >>> env.level
        3
    """
    layers = []
    for layer in _layers(env):
        layers.append(layer)
        if name in getattr(layer, "__dict__", ()) or hasattr(type(layer), name):
            setattr(layer, name, value)
            return
        # Looked up on the class, because wrappers forward attributes. Adapters of
        # Gymnasium have the first, batches and pools the second.
        for setter in ("set_wrapper_attr", "set_attr"):
            if callable(getattr(type(layer), setter, None)):
                getattr(layer, setter)(name, value)
                return
    if hasattr(env, name):
        raise AttributeError(
            f"{name!r} cannot be set: {type(layers[-1]).__name__} only reads it from "
            "what it adapts. Give it a method that sets it, and use call()."
        )
    setattr(env, name, value)


def rows_in_wrapper(env: Any, wrapper_class: type) -> list[bool]:
    """Returns, for each row of an environment, whether it has a wrapper of a class.

    Example:
        >>> from envkit import BatchedPyEnvironment
        >>> from envkit.testing import CountingEnv
        >>> from envkit.wrappers import TimeLimit
        >>> env = BatchedPyEnvironment([CountingEnv(), TimeLimit(CountingEnv(), 5)])
        >>> rows_in_wrapper(env, TimeLimit)
        [False, True]
    """
    rows = getattr(env, "batch_size", None) or 1
    if any(isinstance(layer, wrapper_class) for layer in _layers(env, foreign=True)):
        return [True] * rows
    ask = getattr(env, "env_is_wrapped", None)
    if callable(ask):  # A pool, which asks its workers.
        return list(ask(wrapper_class))
    vector_env = getattr(env, "vector_env", None)  # of Gymnasium
    envs = getattr(env if vector_env is None else vector_env.unwrapped, "envs", None)
    if not isinstance(envs, list | tuple) or len(envs) != rows:
        return [False] * rows
    return [rows_in_wrapper(one, wrapper_class)[0] for one in envs]


def _layers(env: Any, *, foreign: bool = False) -> Iterator[Any]:
    """Yields the wrappers from the outside in, then the environment.

    Args:
        env: An environment.
        foreign: Whether to continue with the Gymnasium or Gym environment that is
            adapted, and its wrappers.
    """
    layer = env
    while layer is not None:
        yield layer
        if hasattr(type(layer), "wrapped_env"):
            layer = layer.wrapped_env()
        elif not foreign:
            return
        elif isinstance(layer, PyEnvironment):
            layer = getattr(layer, "gym", None)
        else:
            layer = getattr(layer, "env", None)


def wrap(env: Any, *wrappers: Callable[..., Any] | Sequence[Any]) -> Any:
    """Wraps an environment in one wrapper after the other, the first innermost.

    Args:
        env: The environment.
        wrappers: Each is a wrapper, or a list of a wrapper and its further arguments.
            For arguments by name, use `functools.partial`.

    Example:
        >>> from envkit.envs import CartPole
        >>> from envkit.wrappers import FrameStack, TimeLimit, wrap
        >>> wrap(CartPole(), [TimeLimit, 500], [FrameStack, 4])
        FrameStack(TimeLimit(CartPole(), duration=500), stack_size=4)
    """
    env = as_environment(env)
    if not is_environment(env):
        raise TypeError(
            f"wrap() wraps an environment, not {no_environment(env)} The environment "
            "comes first: wrap(env, [TimeLimit, 500])."
        )
    lists: list[Sequence[Any]]
    lists = [each if isinstance(each, list | tuple) else [each] for each in wrappers]
    for place, parts in enumerate(lists, 1):
        if not parts or not callable(parts[0]):
            raise TypeError(
                f"Wrapper {place} of wrap() is {wrappers[place - 1]!r:.80}. Each is a "
                "wrapper, or a list of a wrapper and its arguments, such as "
                "[TimeLimit, 500]."
            )
    for place, (wrapper, *arguments) in enumerate(lists, 1):
        wrapped = wrapper(env, *arguments)
        if not is_environment(wrapped):
            raise TypeError(
                f"Wrapper {place} of wrap() returned {describe(wrapped)}, which is not "
                "an environment."
            )
        env = wrapped
    return env


def rendered(env: Any, mode: str) -> Any:
    """Renders an environment, with the same error everywhere for unknown modes.

    Raises:
        NotImplementedError: The environment does not render in this mode. The message
            lists its modes if it has `render_modes` or Gymnasium's `metadata`.

    Example:
        >>> class Writer:
        ...     render_modes = ("ansi",)
        ...     def render(self, mode):
        ...         return {"ansi": "."}[mode]
        >>> rendered(Writer(), "human")
        Traceback (most recent call last):
        NotImplementedError: Writer does not render 'human'; its modes are: 'ansi'.
    """
    try:
        return env.render(mode)
    except (EnvkitError, NotImplementedError):
        raise
    except (AssertionError, LookupError, TypeError, ValueError) as error:
        modes = _modes_of(env)
        # Whatever is wrong, it is not the mode.
        if mode == "rgb_array" or mode in modes:
            raise
        name = type(getattr(env, "unwrapped", env)).__name__
        reason = f"; its modes are: {listed(map(repr, modes))}."
        if not modes:
            reason = f": render({mode!r}) raised {type(error).__name__}: {error}"
        raise NotImplementedError(f"{name} does not render {mode!r}{reason}") from error


def _modes_of(env: Any) -> list[str]:
    """Returns the modes that an environment declares."""
    modes = getattr(env, "render_modes", None)
    if modes is None:
        metadata = getattr(env, "metadata", None)
        if isinstance(metadata, Mapping):
            modes = metadata.get("render_modes") or metadata.get("render.modes")
    return [str(mode) for mode in modes or ()]
