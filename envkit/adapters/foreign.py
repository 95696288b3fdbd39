"""`ForeignEnvironment`, and what all adapters share.

Gymnasium and PettingZoo mark the end of an episode with two flags, which an info may
hold too:

| time step                                  | terminated | truncated |
|--------------------------------------------|------------|-----------|
| `LAST` with discount 0                     | true       | false     |
| `LAST` with a discount above 0             | false      | true      |
| `LAST` whose info has both flags           | as it says | as it says |
| any other                                  | false      | false     |

An info holds both flags, `terminated` and `truncated`, if an environment can end both
ways at once, or can discount by 0 without ending. Gymnasium's own info then leaves them
out. A discount that does not follow from the flags is in the info as `discount`.
"""

from __future__ import annotations

import abc
import contextlib
import copy
import functools
import importlib.util
import logging
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, NoReturn, TypeVar

import numpy as np

from envkit import nest
from envkit._shared.arguments import as_discount
from envkit.adapters.values import Leaf, map_specs
from envkit.errors import (
    CallOrderError,
    ClosedError,
    MissingDependencyError,
    SpecError,
)
from envkit.extend import (
    DirectRow,
    Internals,
    Result,
    SpecifiedEnvironment,
    describe,
    flags_in,
    hand_options,
    listed,
)
from envkit.provenance import record_seed
from envkit.py_environment import PyEnvironment
from envkit.seeding import checked_seeds
from envkit.specs.arrays import ArraySpec
from envkit.time_step import StepType, TimeStep
from envkit.types import Array, NestedArray, NestedSpec, Seed
from envkit.wrappers.private_randomness import PrivateRandomness

__all__ = [
    "First",
    "ForeignBase",
    "ForeignEnvironment",
    "ForeignInternals",
    "ForeignTimeSteps",
    "LateBase",
    "as_info",
    "check_render_mode",
    "constant",
    "drawn_seed",
    "forwarded",
    "forwarded_to_library",
    "handed_options",
    "limited_and_wrapped",
    "number_of",
    "rendered",
    "require",
    "result_of_time_step",
    "reward_of",
    "take_flags",
    "told_of_losses",
    "with_flags",
]

_LOGGER = logging.getLogger(__name__)


_FIRST, _MID, _LAST = StepType.FIRST, StepType.MID, StepType.LAST
# The classes of rewards that need no check.
_NUMBERS = frozenset([float, int, np.float32, np.float64])


class First(Result):
    """The beginning of an episode; most libraries give it neither reward nor discount.

    Without a `discount`, the reward is 0 and the discount 1.
    """


def result_of_time_step(kind: int, observation: Any, reward: Any, worth: Any) -> Result:
    """Returns a `Result` for a time step in dm_env's form.

    Args:
        kind: 0 for a `FIRST`, 1 for a `MID`, 2 for a `LAST`.
        observation: The observation.
        reward: The reward.
        worth: The discount.
    """
    # Hot: called once per step.
    if kind == 1:
        return Result(observation, reward, False, False, {}, worth)
    if kind == 0:
        return First(observation, info={})
    goes_on = any(map(np.any, nest.flatten(worth)))
    return Result(observation, reward, not goes_on, goes_on, {}, worth)


def with_flags(info: Any, terminated: bool, truncated: bool) -> dict[Any, Any]:
    """Returns an info with flags that say how the episode ended.

    The library's own entries of these names are dropped: they mean something else.

    Example:
        >>> with_flags({"lives": 0, "truncated": 7}, True, False)
        {'terminated': True, 'truncated': False, 'lives': 0}
    """
    ends = {"terminated": terminated, "truncated": truncated}
    return {**ends, **info, **ends}


class ForeignInternals(Internals):
    """Asks an adapter what its library accepts, and how a worker may step it."""

    def accepts_options(self, env: Any, rows: Array | None) -> bool:
        """Returns True if the library accepts options."""
        accepts: bool | None = env._accepts_options()
        return super().accepts_options(env, rows) if accepts is None else accepts

    def direct_row(self, env: Any) -> DirectRow | None:
        """Returns the adapter's direct row, if it has one."""
        row: DirectRow | None = env._direct_row()
        return row


class ForeignBase(SpecifiedEnvironment):
    """The base class of everything that another library steps, batches included.

    A subclass sets these attributes in `__init__`:

    | attribute                           | value                                    |
    |-------------------------------------|------------------------------------------|
    | `_foreign`                          | the library's environment                |
    | `_name`                             | its name in messages                     |
    | `_observation_spec`, `_action_spec` | the specs                                |
    | `_reward_spec`, `_discount_spec`    | the specs, unless one float32 each       |
    | `_batch_size`                       | the number of rows, if it is a batch     |

    The next `_reset` uses `_next_seed`. Public attributes that the subclass lacks are
    taken from `_foreign`.
    """

    # On the class, so that a half-made object can be closed and copied.
    _foreign: Any = None
    _name = "The environment"
    _info: Any = {}  # noqa: RUF012  # never written to
    _next_seed: int | None = None
    _closed = False
    # The global random generators from which the library's environments may draw; what
    # makes environments by name gives each its own, with `PrivateRandomness`.
    _global_generators: ClassVar[tuple[str, ...]] = ()
    # The attributes that a state holds besides the library's environment.
    _in_state: ClassVar[tuple[str, ...]] = ("_info", "_next_seed")
    _envkit = ForeignInternals()

    def __repr__(self) -> str:
        # Some are made of several words, for messages.
        name = "" if " " in self._name else self._name
        inside = super().__repr__().partition("(")[2]
        between = ", " if name and inside != ")" else ""
        return f"{type(self).__name__}({name}{between}{inside}"

    def _accepts_options(self) -> bool | None:
        """Returns whether the library accepts options; `None` asks `_reset`."""
        return None

    def _direct_row(self) -> DirectRow | None:
        """Returns an object that steps without time steps, if there is one."""
        return None

    def __getattr__(self, name: str) -> Any:
        return forwarded(self, lambda: self._foreign, name)

    def seed(self, seed: Seed) -> Any:
        """Seeds the environment at the next reset; later resets do not reseed."""
        record_seed(self, seed)
        (own,) = checked_seeds(seed, 1)
        # In most libraries, no seed means that the old generator continues.
        self._next_seed = drawn_seed() if own is None else own

    def get_info(self) -> Any:
        """Returns the library's info for the current time step.

        It is empty before the first reset.
        """
        return dict(self._info)

    def render(self, mode: str = "rgb_array") -> Any:
        """Returns a rendering in the mode that the environment was made with."""
        self._check_open("render")
        picture = self._draw(mode)
        return np.array(picture) if mode == "rgb_array" else picture

    def _draw(self, mode: str) -> Any:
        """Returns the library's picture, which may be the library's own array."""
        check_render_mode(self._foreign, self._name, mode)
        return self._foreign.render()

    def close(self) -> None:
        """Closes the environment; calling it again does nothing."""
        if not self._closed:
            self._closed = True
            self._close()

    def _close(self) -> None:
        """Closes the library's environment if it can be closed; called once."""
        close = getattr(self._foreign, "close", None)
        if callable(close):
            close()

    def _check_open(self, call: str) -> None:
        if self._closed:
            raise ClosedError.used(type(self).__name__, call)

    # Imported here, because clients of servers are foreign environments too, and a
    # client must not load code that unpickles.

    def _get_state(self) -> Any:
        from envkit.adapters.state import take_snapshot

        beside = [getattr(self, name) for name in self._in_state]
        return take_snapshot(self._foreign, self._name, beside)

    def _set_state(self, state: Any) -> None:
        from envkit.adapters.state import restore_snapshot

        beside = restore_snapshot(self._foreign, self._name, state)
        for name, value in zip(self._in_state, beside, strict=True):
            setattr(self, name, value)


class ForeignEnvironment(ForeignBase):
    """The base class of single environments that another library steps.

    A subclass defines two methods, which call the library. The base class makes time
    steps, flags, discounts and infos, or writes them directly into a pool's row:

    | method                   | returns                                             |
    |--------------------------|-----------------------------------------------------|
    | `_begin(seed, options)`  | the observation and the info of a new episode       |
    | `_move(action)`          | a `Result`, or a tuple of its first five fields     |

    Besides the attributes of `ForeignBase`, a subclass sets the converters `_to_action`
    and `_to_observation`, and calls `_prepare` once the specs are set.
    """

    # The library's name in messages about rewards.
    _library: ClassVar[str] = "foreign"
    _to_action: Leaf
    _to_observation: Leaf
    _reset_options: Any = None
    _next_options: Any = None
    # The dtype and shape of observations that are copied without a converter.
    _plain_dtype: Any = None
    _plain_shape: tuple[int, ...] | None = None
    # Checks that such an observation is within its bounds, if that is wanted.
    _fits: Callable[[Any], bool] | None = None
    _numbers: frozenset[type] = frozenset()

    def _prepare(self, discount: float = 1.0, *, copies_arrays: bool = False) -> None:
        """Prepares the values that all time steps share; the specs must be set.

        Args:
            discount: The discount of steps that do not terminate the episode.
            copies_arrays: Whether an array with the shape and dtype of its spec only
                has to be copied to be an observation.
        """
        spec = self.discount_spec()
        worth = as_discount(discount)
        self._one, self._over = _constants(spec, 1.0), _constants(spec, 0.0)
        self._going_on = _constants(spec, worth)
        self._usual = worth if isinstance(spec, ArraySpec) and not spec.shape else None
        reward_spec, seen = self.reward_spec(), self.observation_spec()
        if isinstance(reward_spec, ArraySpec) and reward_spec.shape == ():
            self._numbers, self._reward_dtype = _NUMBERS, reward_spec.dtype
        if copies_arrays and isinstance(seen, ArraySpec):
            self._plain_dtype, self._plain_shape = seen.dtype, seen.shape

    def get_info(self) -> Any:
        """Returns the library's info for the current time step.

        At the end of an episode it includes `terminated` and `truncated`. Before the
        first reset it is empty.
        """
        return self._shown_info()

    @abc.abstractmethod
    def _begin(self, seed: int | None, options: Any) -> tuple[Any, Any]:
        """Begins an episode in the library.

        Args:
            seed: The seed; `None` continues the library's random numbers.
            options: The options of this reset; `None` for none.
        """

    @abc.abstractmethod
    def _move(self, action: Any) -> Any:
        """Applies one of the library's actions."""

    def _to_reward(self, reward: Any) -> NestedArray:
        """Converts a reward of an unusual number class."""
        number = reward_of(self, reward, self._library)
        return np.array(number, self._reward_dtype)

    def _to_discount(self, discount: Any) -> NestedArray:
        """Converts the library's discount."""
        return np.array(discount, self.discount_spec().dtype)

    def _shown_info(self) -> Any:
        """Returns a copy of the info."""
        return dict(self._info)

    def _knows_info(self) -> bool:
        """Returns True if `get_info` returns the library's info unchanged."""
        return type(self).get_info is ForeignEnvironment.get_info

    def _choices(self) -> Mapping[int, Any] | None:
        """Returns the library's action for each number, for rows of pools.

        The mapping is empty if the library takes arrays as actions; `None` means that
        actions have to be converted.
        """
        return None

    def _refuse_result(self, call: str, result: Any, expected: str) -> NoReturn:
        """Raises for an invalid result of the library's environment."""
        raise SpecError(
            f"{self._name}.{call}() returned {describe(result)}, which must be the "
            f"tuple {expected}."
        )

    def _accepts_options(self) -> bool | None:
        is_ours = type(self)._reset is ForeignEnvironment._reset
        return False if is_ours else None

    # Episodes.

    def _reset(self, options: Any = None) -> TimeStep:
        return self._first(self._begun(options))

    def _begun(self, options: Any = None) -> Any:
        """Begins an episode with pending seed and options; returns an observation."""
        self._check_open("reset")
        if options is None and self._next_options is not None:
            # A copy, because an environment may change its options.
            options = copy.deepcopy(self._next_options)
        observation, self._info = self._begin(self._next_seed, options)
        # Assign only changes: some adapters have a `__setattr__`.
        if self._next_seed is not None:
            self._next_seed = None
        if self._next_options is not self._reset_options:
            self._next_options = self._reset_options
        return observation

    def _first(self, observation: Any) -> TimeStep:
        if observation.__class__ is Result:
            # Callers that need a FIRST refuse any other time step.
            return self._time_step(observation)
        if observation.__class__ is First:
            if observation.discount is not None:
                return self._first_as_told(observation)
            observation = observation.observation
        return TimeStep(
            _FIRST,
            map_specs(_zeros, self.reward_spec()),
            self._one,
            self._to_observation(observation),
        )

    def _first_as_told(self, first: First) -> TimeStep:
        """Returns a `FIRST` with the library's own reward and discount."""
        reward = self._to_reward(first.reward)
        discount = self._to_discount(first.discount)
        return TimeStep(
            _FIRST, reward, discount, self._to_observation(first.observation)
        )

    def _step(self, action: NestedArray) -> TimeStep:
        # Hot: called once per step.
        if self._closed or not self._handle_auto_reset:
            self._check_may_step()
        return self._time_step(self._move(self._to_action(action)))

    def _check_may_step(self) -> None:
        self._check_open("step")
        now = self._current_time_step
        if now is not None and now.is_last() and not self._handle_auto_reset:
            raise CallOrderError(
                f"The episode of {self._name} has ended, and this "
                f"{type(self).__name__} was made with auto_reset=False. Call reset()."
            )

    def _time_step(self, result: Any) -> TimeStep:
        """Returns a time step for the library's result."""
        # Hot: called once per step.
        discount = None
        if result.__class__ is Result:
            observation, reward, terminated, truncated, self._info, discount = result
        else:
            if result.__class__ is First:
                return self._first(result)
            try:
                observation, reward, terminated, truncated, self._info = result
            except (TypeError, ValueError):
                self._refuse_result("step", result, _STEP_FORM)
        # What `transition` returns for a number, but without checking for tensors,
        # which would be a third of this wrapper's cost.
        reward = (
            np.array(reward, self._reward_dtype)
            if reward.__class__ in self._numbers
            else self._to_reward(reward)
        )
        if terminated or truncated:
            self._keep_end(self._info, bool(terminated), bool(truncated))
        # The common case of the converter, without a call.
        if (
            observation.__class__ is np.ndarray
            and observation.dtype is self._plain_dtype
            and observation.shape == self._plain_shape
        ):
            observation = observation.copy()
        else:
            observation = self._to_observation(observation)
        if discount is None:
            discount = self._over if terminated else self._going_on
        elif discount.__class__ is float and discount == self._usual:
            discount = self._going_on
        else:
            discount = self._to_discount(discount)
        return TimeStep(
            _LAST if terminated or truncated else _MID, reward, discount, observation
        )

    def _keep_end(self, info: Any, terminated: bool, truncated: bool) -> None:
        """Keeps an info with both flags, for an end that the discount cannot show."""
        self._info = with_flags(info, terminated, truncated)

    def _direct_row(self) -> DirectRow | None:
        # Not if the class overrides step or reset.
        spec, choices = self.observation_spec(), self._choices()
        if (
            choices is None
            or self._closed
            or not self._numbers
            or not isinstance(spec, ArraySpec)
            or not self._envkit.are_own(self, *_STEPPING)
        ):
            return None
        return DirectRow(
            self,
            move=self._move,
            begin=self._begun,
            end=self._keep_end,
            finish=self._time_step,
            finish_first=self._first,
            choices=choices or None,
            discount=self._going_on,
            numbers=self._numbers,
            fits=self._fits,
            asks_info=not self._knows_info(),
        )


class ForeignTimeSteps(ForeignEnvironment):
    """Wraps an environment whose library returns time steps."""

    # Convert a reward and a discount; set by the subclass.
    _read_reward: Callable[[Any], NestedArray]
    _read_discount: Callable[[Any], NestedArray]

    def _to_reward(self, reward: Any) -> NestedArray:
        return self._read_reward(reward)

    def _to_discount(self, discount: Any) -> NestedArray:
        return self._read_discount(discount)

    def _keep_end(self, info: Any, terminated: bool, truncated: bool) -> None:
        self._info = info  # the discount tells how it ended


# Methods that define a foreign environment's step.
_STEPPING = ("step", "_step", "_time_step", "reset", "_reset", "_first", "should_reset")
_STEP_FORM = "(observation, reward, terminated, truncated, info)"


def _zeros(spec: ArraySpec) -> Array:
    return np.zeros(spec.shape, spec.dtype)


def _constants(spec: NestedSpec, number: float) -> NestedArray:
    """Makes arrays of one number; read-only, because many time steps share them."""

    def leaf_of(leaf: ArraySpec) -> Array:
        array = np.full(leaf.shape, number, leaf.dtype)
        array.setflags(write=False)
        return array

    return map_specs(leaf_of, spec)


def drawn_seed() -> int:
    """Draws a seed, for libraries in which `None` means not to seed."""
    return int(np.random.SeedSequence().generate_state(1)[0])


def constant(number: float) -> Array:
    """Makes a discount; read-only, because many time steps share it."""
    array = np.array(number, np.float32)
    array.setflags(write=False)
    return array


def require(package: str, *, needed_by: str, extra: str) -> None:
    """Raises unless a package is installed, without importing it.

    Args:
        package: The name to import.
        needed_by: What needs it: the subject of the error message.
        extra: The extra of envkit that installs it.

    Example:
        >>> require("numpy", needed_by="This example", extra="test")

    Raises:
        MissingDependencyError: It is missing or too old; the message has the command
            that installs it.
    """
    spec = importlib.util.find_spec(package)
    # Without an origin, it is a folder that happens to have the name.
    if spec is None or spec.origin is None:
        raise MissingDependencyError.needed_by(needed_by, package=package, extra=extra)
    if package == "gymnasium":
        _check_gymnasium(needed_by)


def _check_gymnasium(needed_by: str) -> None:
    """Raises for a Gymnasium whose vector environments order resets differently."""
    loaded = sys.modules.get("gymnasium")
    version = getattr(loaded, "__version__", None)
    if version is None:
        import importlib.metadata

        try:
            version = importlib.metadata.version("gymnasium")
        except importlib.metadata.PackageNotFoundError:  # a checkout
            return
    if str(version).startswith("0."):
        error = MissingDependencyError(
            f"{needed_by} needs Gymnasium 1.0 or newer, and {version} is installed: "
            'pip install "gymnasium>=1.0"'
        )
        error.package = "gymnasium"
        raise error


def forwarded(adapter: Any, wrapped_env: Callable[[], Any], name: str) -> Any:
    """Returns an environment's attribute, for the `__getattr__` of its adapter.

    Args:
        adapter: The adapter, which lacks the attribute.
        wrapped_env: Returns the environment.
        name: The attribute; private ones are not forwarded.
    """
    # Private names: copy and pickle look some up before there is an environment.
    if not name.startswith("_"):
        try:
            return getattr(wrapped_env(), name)
        except AttributeError:
            pass
    # Python's error, or that of the adapter's own property.
    return object.__getattribute__(adapter, name)


def forwarded_to_library(
    adapter: Any, wrapped_env: Callable[[], Any], name: str
) -> Any:
    """Returns an envkit environment's attribute to a program for another library.

    `PyEnvironment`'s own names are not forwarded: a program that asks a Gymnasium
    environment for `seed` means the method of the old Gym.
    """
    if hasattr(PyEnvironment, name):
        raise AttributeError(
            f"{type(adapter).__name__!r} object has no attribute {name!r}; "
            "wrapped_env() has."
        )
    return forwarded(adapter, wrapped_env, name)


def as_info(info: Any) -> dict[str, Any]:
    """Returns an environment's info as a dictionary, as Gymnasium has it."""
    # Hot: called once per step.
    if type(info) is dict or isinstance(info, Mapping):
        return dict(info)
    # Environments of the old Gym have none at the beginning of an episode.
    return {} if info is None else {"info": info}


def take_flags(info: dict[str, Any]) -> tuple[bool, bool] | None:
    """Removes the two flags from an info and returns them, if it has both.

    Example:
        >>> import numpy as np
        >>> info = {"terminated": np.array(True), "truncated": np.array(False), "a": 1}
        >>> take_flags(info), info
        ((True, False), {'a': 1})
        >>> take_flags({"truncated": True}) is None
        True
    """
    # Hot: called once per step.
    flags = flags_in(info)
    if flags is None:
        return None
    del info["terminated"], info["truncated"]
    return bool(flags[0]), bool(flags[1])


def number_of(reward: Any) -> float | None:
    """Returns a reward as a float if it is a number of any kind.

    Example:
        >>> from fractions import Fraction
        >>> number_of(Fraction(1, 2)), number_of(np.array([3])), number_of("3")
        (0.5, 3.0, None)
    """
    array = np.asarray(reward)
    if array.dtype == object and hasattr(reward, "__float__"):
        return float(reward)
    is_one = array.size == 1 and array.dtype.kind in "biuf"
    return float(array.reshape(())) if is_one else None


def reward_of(env: ForeignBase, reward: Any, library: str) -> float:
    """Returns the library's reward as a float; raises if it is not a number."""
    number = number_of(reward)
    if number is not None:
        return number
    raise SpecError.does_not_fit(
        f"{env._name} returned a reward that",
        path="",
        expected=repr(env.reward_spec()),
        got=describe(reward),
        reason=f"A reward of a {library} environment is one number.",
    )


def check_render_mode(
    env: Any, name: str, mode: str, library: str = "Gymnasium"
) -> None:
    """Raises unless the library's environment was made with this `render_mode`."""
    made_with = getattr(env, "render_mode", None)
    if made_with != mode:
        how = f"with render_mode={made_with!r}" if made_with else "without one"
        modes = (getattr(env, "metadata", None) or {}).get("render_modes") or ()
        remedy = f"Make it with render_mode={mode!r}."
        if modes and mode not in modes:
            remedy = f"Its modes are: {listed(map(repr, modes))}."
        raise NotImplementedError(
            f"{name} cannot render {mode!r}: the render_mode of a {library} "
            f"environment is chosen when it is made, and this one was made {how}. "
            f"{remedy}"
        )


def rendered(env: Any, render_mode: str | None, name: str) -> Any:
    """Returns an environment's rendering, for an adapter to another library.

    Raises:
        NotImplementedError: The adapter was made without a render mode.
    """
    if render_mode is None:
        raise NotImplementedError(
            f"{name} was made without a render_mode, so it does not render. Make it "
            'with render_mode="rgb_array".'
        )
    return env.render(render_mode)


@contextlib.contextmanager
def handed_options(env: Any, options: Any, rows: Array | None = None) -> Iterator[None]:
    """Hands options to an environment for a reset, and withdraws unused ones.

    Programs for Gymnasium and PettingZoo pass options even to environments that accept
    none. A line in the log reports options that are lost that way.

    Args:
        env: The environment.
        options: A single environment's options, or a list with each row's; `None` or an
            empty dictionary for none.
        rows: In a batch, a mask of the rows to reset; `None` for all.
    """
    is_by_row = isinstance(options, list)
    given = [own for own in options if own] if is_by_row else options
    with told_of_losses("options", type(env).__name__):
        if given:
            hand_options(env, options, rows)
    try:
        yield
    finally:
        if given:
            hand_options(env, None, rows)


@contextlib.contextmanager
def told_of_losses(argument: str, name: str) -> Iterator[None]:
    """Logs that an environment accepts no seed or no options, instead of raising.

    Programs for Gymnasium and PettingZoo seed every environment.

    Args:
        argument: "seed" or "options".
        name: The environment's name.
    """
    try:
        yield
    except NotImplementedError as error:
        reason = str(error).partition("\n")[0]
        did = "seeded" if argument == "seed" else "reached"
        _LOGGER.warning("reset(%s=...) has not %s %s: %s", argument, did, name, reason)


def limited_and_wrapped(
    env: PyEnvironment,
    max_episode_steps: int | None,
    time_limit_wrapper: Callable[[PyEnvironment, int], PyEnvironment],
    env_wrappers: Sequence[Callable[[PyEnvironment], PyEnvironment]],
    *,
    private_randomness: bool = True,
) -> PyEnvironment:
    """Applies a time limit, if there is one, and then the wrappers.

    If the library draws from global random generators, the environment first gets its
    own, unless `private_randomness` is false.
    """
    names = getattr(env, "_global_generators", ())
    if names and private_randomness:
        env = PrivateRandomness(env, names)
    if max_episode_steps is not None and max_episode_steps > 0:
        env = time_limit_wrapper(env, max_episode_steps)
    for wrap in env_wrappers:
        env = wrap(env)
    return env


Self = TypeVar("Self", bound="LateBase")


class LateBase:
    """Adds a base class from another library, which is imported on first use.

    Instances are of a class of the same name that inherits from both, so `super()`
    finds the other library's methods.

    Example:
        >>> class Settings(LateBase):
        ...     @classmethod
        ...     def _load_base(cls):
        ...         from collections import UserDict
        ...         return UserDict
        >>> settings = Settings(speed=2)
        >>> settings["speed"], type(settings).__name__, isinstance(settings, Settings)
        (2, 'Settings', True)
    """

    @classmethod
    def _load_base(cls) -> type:
        """Imports the library and returns the base class."""
        raise NotImplementedError

    def __new__(cls: type[Self], *args: Any, **kwargs: Any) -> Self:
        """Makes an instance of the completed class."""
        made: Self = super().__new__(_completed(cls))  # type: ignore[arg-type]  # a class is hashable
        return made

    # Pickle cannot find the completed class by its name, so unpickling makes it again.
    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return _new, (type(self).__mro__[1],), self.__getstate__()

    def __getstate__(self) -> Any:
        return vars(self)


@functools.cache
def _completed(cls: Any) -> Any:
    """Returns the class completed with its late base."""
    base = cls._load_base()
    if issubclass(cls, base):
        return cls
    names = ("__module__", "__qualname__", "__doc__")
    return type(cls.__name__, (cls, base), {name: getattr(cls, name) for name in names})


def _new(cls: Any) -> Any:
    return cls.__new__(cls)
