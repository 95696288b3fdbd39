"""TF-Agents: its environments for envkit, and envkit's for TF-Agents.

TF-Agents' agents, networks, drivers and replay buffers accept envkit's
`TFPyEnvironment` as it is. For code that needs TF-Agents' Python environments or spec
classes, `to_tf_agents` makes them. `from_tf_agents` wraps an environment written for
TF-Agents, without needing the library.

In TF-Agents, the step after a `LAST` begins the next episode. In a batch this holds for
each row, and only the batch itself can reset single rows.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np

from envkit import nest
from envkit.adapters.foreign import (
    First,
    ForeignBase,
    ForeignTimeSteps,
    forwarded,
    require,
    result_of_time_step,
)
from envkit.adapters.values import Leaf, Repacker, array_leaf, few_numbers
from envkit.errors import CallOrderError, MissingDependencyError, SpecError
from envkit.extend import (
    Result,
    a_or_an,
    as_environment,
    describe,
    install_command,
    listed,
)
from envkit.py_environment import PyEnvironment
from envkit.seeding import checked_seeds, seed_per_row
from envkit.specs.arrays import ArraySpec, BoundedArraySpec, is_discrete
from envkit.time_step import (
    DISCOUNT_SPEC,
    REWARD_SPEC,
    STEP_TYPE_SPEC,
    AutoReset,
    StepType,
    TimeStep,
)
from envkit.types import Array, NestedArray, NestedSpec, Seed

__all__ = [
    "TFAgentsBatchWrapper",
    "TFAgentsWrapper",
    "from_tf_agents",
    "to_tf_agents",
]

_FLOATS = frozenset([float])
_NUMPY_FLOATS = frozenset([np.float32, np.float64])


def to_tf_agents(env: Any) -> Any:
    """Makes a TF-Agents environment from an envkit environment.

    A `PyEnvironment`, batched or not, becomes TF-Agents' `PyEnvironment`, which its
    `TFPyEnvironment` accepts; a `TFEnvironment` becomes TF-Agents' `TFEnvironment`. A
    TF-Agents environment is returned unchanged. Specs and time steps are of TF-Agents'
    classes; public attributes that those environments lack are taken from the envkit
    environment.

    TF-Agents 0.19 runs on Python 3.11 and older. It needs Keras 2: with TensorFlow 2.16
    and newer, install `tf-keras` and set the environment variable
    `TF_USE_LEGACY_KERAS=1`.

    Args:
        env: The environment; closing the result closes it.

    Raises:
        MissingDependencyError: TF-Agents is not installed.
        ValueError: A pool does not begin the next episode in the step after a `LAST`,
            the only order that TF-Agents knows.
    """
    if _is_of_tf_agents(env):
        return env
    takes_tensors = _takes_tensors(env)
    env = env if takes_tensors else as_environment(env)
    if not takes_tensors and not isinstance(env, PyEnvironment):
        raise TypeError(
            f"to_tf_agents() was given {_shown(env)}; it takes an environment: a "
            "PyEnvironment or TFEnvironment of envkit."
        )
    order = AutoReset.kept_by(env)
    if order is not AutoReset.NEXT_STEP:
        raise ValueError(
            f"to_tf_agents() was given {a_or_an(type(env).__name__)} whose autoreset "
            f"is {order.name}; in TF-Agents the step after a LAST returns the FIRST "
            "of the next episode. Set its autoreset to NEXT_STEP."
        )
    _require_tf_agents()
    make = _tf_environment_class() if takes_tensors else _py_environment_class()
    return make(env)


def from_tf_agents(env: Any) -> PyEnvironment:
    """Makes an envkit environment from one written for TF-Agents.

    It must have the methods of TF-Agents' `PyEnvironment`; the library is not needed.
    An envkit environment is returned unchanged.

    Args:
        env: A Python environment, batched or not; closing the result closes it.
    """
    if isinstance(env, PyEnvironment):
        return env
    needed = ("reset", "step", "observation_spec", "action_spec", "time_step_spec")
    if isinstance(env, type) or not all(hasattr(env, name) for name in needed):
        raise TypeError(
            f"from_tf_agents() was given {_shown(env)}; it takes an environment "
            "written for TF-Agents: one that has the methods of its PyEnvironment."
        )
    if _takes_tensors(env):
        raise TypeError(
            f"from_tf_agents() was given {_shown(env)}, which takes and returns "
            "tensors; it takes a Python environment. A TFPyEnvironment has its own as "
            "`pyenv`."
        )
    is_batch = getattr(env, "batched", False)
    return TFAgentsBatchWrapper(env) if is_batch else TFAgentsWrapper(env)


# TF-Agents' wrappers that begin the next episode themselves.
_BEGIN = {"FixedLength", "HistoryWrapper", "PerformanceProfiler", "TimeLimit"}


def _continues(env: Any) -> bool:
    """Returns whether the step after a `LAST` takes its action, as in bandits.

    True for subclasses of TF-Agents' `BanditPyEnvironment` if nothing around them
    begins episodes, and for environments that declare it themselves.
    """
    if getattr(env, "continues_after_last", False) is True:
        return True
    kinds = {kind.__name__ for kind in type(env).__mro__}
    if getattr(env, "_handle_auto_reset", False) is True or kinds & _BEGIN:
        return False
    if "BanditPyEnvironment" in kinds:
        return True
    envs = getattr(env, "envs", None)
    if isinstance(envs, list | tuple) and envs:
        return all(map(_continues, envs))
    inside = getattr(type(env), "wrapped_env", None)
    return callable(inside) and _continues(inside(env))


def _is_of_tf_agents(env: Any) -> bool:
    """Returns whether an environment is TF-Agents' own; does not import TF-Agents."""
    return any(
        kind.__name__ in {"PyEnvironment", "TFEnvironment"}
        and kind.__module__.partition(".")[0] == "tf_agents"
        for kind in type(env).__mro__
    )


def _takes_tensors(env: Any) -> bool:
    """Returns whether the specs of a possible environment are TensorFlow specs."""
    if isinstance(env, type) or not callable(getattr(env, "time_step_spec", None)):
        return False
    step_type = getattr(env.time_step_spec(), "step_type", None)
    return hasattr(step_type, "is_compatible_with")


def _require_tf_agents() -> None:
    try:
        require("tf_agents", needed_by="to_tf_agents()", extra="tf_agents")
    except MissingDependencyError:
        # No extra can include TF-Agents: it requires an older TensorFlow.
        error = MissingDependencyError(
            "to_tf_agents() needs the package tf-agents, which is not installed. It "
            "runs on Python 3.11 and older, with Keras 2, and its own list of "
            "requirements stops at TensorFlow 2.15:\n\n"
            f"  {install_command('tf')} tf-keras tensorflow-probability tensorboard "
            "gin-config gym==0.23.1\n"
            "  pip install --no-deps tf-agents==0.19.0\n"
            "  export TF_USE_LEGACY_KERAS=1"
        )
        error.package = "tf-agents"
        raise error from None


def _shown(env: Any) -> str:
    return f"the class {env.__name__}" if isinstance(env, type) else describe(env)


class _TFAgentsBase(ForeignBase):
    """Shares code between TF-Agents' single environments and batches."""

    _to_action: Leaf

    def __init__(self, env: Any) -> None:
        """Wraps an environment; closing the wrapper closes the environment.

        Args:
            env: The environment.
        """
        self._foreign = env
        self._continues = _continues(env)
        self._name = type(env).__name__
        self._batch_size = env.batch_size if getattr(env, "batched", False) else None
        # Only a batch itself can reset some of its rows.
        super().__init__(handle_auto_reset=not self.batched)
        self._specs = specs = _time_step_specs_of(env)
        self._observation_spec = specs.observation
        self._reward_spec, self._discount_spec = specs.reward, specs.discount
        self._action_spec = _specs("action", env.action_spec())
        self._dims: tuple[int, ...] = ()
        if self._batch_size is not None:
            self._dims = (self._batch_size,)
        self._one_discount = _is_scalar(specs.discount)
        self._to_action = Repacker(
            self._action_spec,
            self._dims,
            leaf=array_leaf,
            subject=f"{self._name} was given an action that",
        )

    @property
    def continues_after_last(self) -> bool:
        """True for bandits: the step after a `LAST` takes its action."""
        return self._continues

    def wrapped_env(self) -> Any:
        """Returns the environment written for TF-Agents."""
        return self._foreign

    def get_info(self) -> Any:
        """Returns the environment's info."""
        return self._foreign.get_info()

    def _draw(self, mode: str) -> Any:
        return self._foreign.render(mode)

    def _reader(self, spec: NestedSpec, what: str, root: str = "") -> Repacker:
        subject = f"{self._name} returned {what} that"
        return Repacker(spec, self._dims, leaf=array_leaf, subject=subject, root=root)

    def _check_time_step(self, theirs: Any, call: str) -> None:
        if not hasattr(theirs, "step_type"):
            raise SpecError(
                f"{self._name}.{call}() returned {describe(theirs)}, not a TimeStep."
            )

    def _get_state(self) -> Any:
        # Their base class looks at its current time step to decide whether to begin an
        # episode, and their environments leave it out of their states.
        standing = getattr(self._foreign, "_current_time_step", None)
        return self._foreign.get_state(), standing

    def _set_state(self, state: Any) -> None:
        own, standing = state
        self._foreign.set_state(own)
        if hasattr(self._foreign, "_current_time_step"):
            self._foreign._current_time_step = standing


class TFAgentsWrapper(_TFAgentsBase, ForeignTimeSteps):
    """Wraps a single environment written for TF-Agents.

    Observations, rewards and discounts get the dtypes of their specs. For a vector
    reward, TF-Agents' time step functions return a step type and a discount for each
    element; the wrapper returns one. The environment need not begin the next episode
    itself.

    The state is the result of the environment's own `get_state`. Public attributes that
    the wrapper lacks are taken from the environment.

    TF-Agents' bandits return a `LAST` for every step, and the step after it takes an
    action too: `continues_after_last` is true for them.
    """

    def __init__(self, env: Any) -> None:
        """Wraps an environment; closing the wrapper closes the environment.

        Args:
            env: The environment.
        """
        super().__init__(env)
        specs = self._specs
        self._to_step_type = self._reader(specs.step_type, "a step type", "step_type")
        self._to_observation = self._reader(
            specs.observation, "an observation", "observation"
        )
        self._read_reward = self._reader(specs.reward, "a reward", "reward")
        self._read_discount = self._reader(specs.discount, "a discount", "discount")
        self._prepare(copies_arrays=True)
        # A float is only a number for float dtypes.
        self._numbers = _FLOATS if _is_float(specs.reward) else frozenset()
        self._usual = 1.0 if _is_float(specs.discount) else None
        action = self._action_spec
        self._number: Any = None
        if _is_scalar(action) and isinstance(action, BoundedArraySpec):
            self._number = action.dtype if is_discrete(action) else None

    def seed(self, seed: Seed) -> Any:
        """Seeds the environment."""
        (own,) = checked_seeds(seed, 1)
        return self._foreign.seed(own)

    def _begin(self, seed: int | None, options: Any) -> tuple[Any, Any]:
        result = self._as_result(self._foreign.reset(), "reset")
        is_usual = result.__class__ is First and result.discount is None
        return result.observation if is_usual else result, {}

    def _move(self, action: Any) -> Result:
        # Hot: called once per step.
        if self._number is not None and action.__class__ is not np.ndarray:
            action = np.array(action, self._number)  # as TF-Agents' policies return it
        return self._as_result(self._foreign.step(action), "step")

    def _as_result(self, theirs: Any, call: str) -> Result:
        # Hot: called once per step.
        self._check_time_step(theirs, call)
        step_type = theirs.step_type
        if np.shape(step_type) or np.asarray(step_type).dtype != _FIRST.dtype:
            step_type = self._to_step_type(_one_per_row(step_type, ()))
        kind = int(step_type)
        if not 0 <= kind <= 2:
            StepType(step_type)  # raises
        reward, discount = _as_number(theirs.reward), _as_number(theirs.discount)
        if self._one_discount and discount.__class__ is not float:
            discount = _one_per_row(discount, ())
        elif discount is None:
            self._to_discount(discount)  # raises
        if kind == 0:
            is_zero = reward.__class__ in self._numbers and str(reward) == "0.0"
            if not (
                is_zero and discount.__class__ is float and discount == self._usual
            ):
                return First(theirs.observation, reward, info={}, discount=discount)
        return result_of_time_step(kind, theirs.observation, reward, discount)

    def _choices(self) -> Mapping[int, Any] | None:
        action = self._action_spec
        if not isinstance(action, ArraySpec):
            return None
        if action.shape == ():
            return few_numbers(action) or None if self._number is not None else None  # type: ignore[arg-type]  # it is bounded
        return {}


class TFAgentsBatchWrapper(_TFAgentsBase):
    """Wraps a batch written for TF-Agents.

    It treats each row as `TFAgentsWrapper` treats an environment. If TF-Agents' time
    step functions return one discount for the whole batch, each row gets it. Each row
    must begin its next episode itself.
    """

    def __init__(self, env: Any) -> None:
        """Wraps a batch; closing the wrapper closes the batch.

        Args:
            env: The batch.
        """
        super().__init__(env)
        self._to_time_step = self._reader(self._specs, "a time step")

    def seed(self, seed: Seed) -> Any:
        """Seeds the batch.

        If the batch lists its environments in `envs`, each gets its own seed; any other
        batch gets the seed as it is.
        """
        envs = getattr(self._foreign, "envs", None)
        if not envs:
            return self._foreign.seed(seed)
        seeds = seed_per_row(seed, self._dims[0])
        if hasattr(envs[0], "call"):  # in processes, which the batch calls
            return self._foreign.seed(seeds)
        # The batch would give every row the same seed, or refuse.
        return [env.seed(own) for env, own in zip(envs, seeds, strict=True)]

    def _reset(self) -> TimeStep:
        self._check_open("reset")
        return self._repacked(self._foreign.reset(), "reset")

    def _step(self, action: NestedArray) -> TimeStep:
        # Hot: called once per step.
        if self._closed:
            self._check_open("step")
        time_step = self._repacked(self._foreign.step(self._to_action(action)), "step")
        if not self._continues:
            _check_rows_begin(self._name, self._current_time_step, time_step)
        return time_step

    def _repacked(self, theirs: Any, call: str) -> TimeStep:
        self._check_time_step(theirs, call)
        discount = theirs.discount
        if self._one_discount:
            discount = _one_per_row(discount, self._dims)
        step_type = _one_per_row(theirs.step_type, self._dims)
        time_step: TimeStep = self._to_time_step(
            TimeStep(step_type, theirs.reward, discount, theirs.observation)
        )
        return time_step


def _as_number(value: Any) -> Any:
    """Returns a float for a zero-dimensional array: pool rows take no arrays."""
    # Hot: called twice per step.
    is_number = value.__class__ is np.ndarray and value.shape == ()
    if (is_number and value.dtype.char in "fd") or value.__class__ in _NUMPY_FLOATS:
        return value.item()
    return value


def _time_step_specs_of(env: Any) -> TimeStep:
    """Returns an environment's time step specs as envkit specs."""
    spec = env.time_step_spec()
    # Their time_step_spec() omits the discount_spec(), and the reward_spec() of their
    # batches omits the environments': one of the two is right.
    return TimeStep(
        step_type=STEP_TYPE_SPEC,
        reward=_own_spec(env, "reward", spec.reward, REWARD_SPEC),
        discount=_own_spec(env, "discount", spec.discount, DISCOUNT_SPEC),
        observation=_specs("observation", env.observation_spec()),
    )


def _own_spec(env: Any, part: str, spec: Any, default: ArraySpec) -> NestedSpec:
    """Returns the spec of a part if it differs from the default."""
    found = default if spec is None else _specs(part, spec)
    if _is_scalar(found) and found == default and hasattr(env, f"{part}_spec"):
        own = getattr(env, f"{part}_spec")()
        return default if own is None else _specs(part, own)  # a bandit has None
    return found


def _specs(part: str, theirs: Any) -> NestedSpec:
    """Converts a nest of objects with the attributes of specs to envkit specs."""
    structure = nest.Structure(theirs)
    pairs = zip(structure.leaves, structure.paths, strict=True)
    return structure.unflatten([_spec(leaf, f"{part}{path}") for leaf, path in pairs])


def _spec(spec: Any, path: str) -> ArraySpec:
    if isinstance(spec, ArraySpec):
        return spec
    if not hasattr(spec, "shape") or not hasattr(spec, "dtype"):
        error = SpecError(
            f"The spec at {path} must be an ArraySpec, got {spec!r:.120}, which has no "
            "shape or no dtype."
        )
        error.path = path
        raise error
    name = getattr(spec, "name", None)
    if not hasattr(spec, "minimum"):
        return ArraySpec(spec.shape, spec.dtype, name)
    return BoundedArraySpec(spec.shape, spec.dtype, spec.minimum, spec.maximum, name)


def _is_scalar(spec: NestedSpec) -> bool:
    return isinstance(spec, ArraySpec) and spec.shape == ()


def _is_float(spec: NestedSpec) -> bool:
    return isinstance(spec, ArraySpec) and spec.shape == () and spec.dtype.kind == "f"


def _one_per_row(value: Any, dims: tuple[int, ...]) -> Array:
    """Returns a value per row, given one for all or a vector of equal ones per row."""
    array = np.asarray(value)
    if array.shape == dims:
        return array
    if array.ndim == 0:
        return np.broadcast_to(array, dims)
    if array.shape[: len(dims)] == dims and array.size:
        elements = array.reshape(*dims, -1)
        if (elements == elements[..., :1]).all():
            return elements[..., 0]
    return array


class _PyAdapter:
    """Presents an envkit environment in TF-Agents' classes."""

    def __init__(self, env: PyEnvironment) -> None:
        # TF-Agents' base class begins an episode once all rows have ended, but a batch
        # does that itself, row by row.
        begins = not (env.batched or env.continues_after_last)
        super().__init__(handle_auto_reset=begins)  # type: ignore[call-arg]  # TF-Agents' class comes next
        self._env = env
        self._name = type(env).__name__
        ours = env.time_step_spec()
        self._specs = nest.map_structure(_spec_for_tf_agents, _time_step_class()(*ours))
        self._own_action_spec = nest.map_structure(
            _spec_for_tf_agents, env.action_spec()
        )
        self._repack = Repacker(
            ours,
            () if env.batch_size is None else (env.batch_size,),
            leaf=_own_array_leaf,
            subject=f"{self._name} returned a time step that",
            template=self._specs,
        )
        self._current_time_step = self._standing()

    @property
    def batched(self) -> bool:
        return self._env.batched

    @property
    def batch_size(self) -> int | None:
        return self._env.batch_size

    def wrapped_env(self) -> PyEnvironment:
        """Returns the envkit environment."""
        return self._env

    def __getattr__(self, name: str) -> Any:
        return forwarded(self, self.wrapped_env, name)

    def observation_spec(self) -> Any:
        return self._specs.observation

    def action_spec(self) -> Any:
        return self._own_action_spec

    def reward_spec(self) -> Any:
        return self._specs.reward

    def discount_spec(self) -> Any:
        return self._specs.discount

    def time_step_spec(self) -> Any:
        # TF-Agents' own version would omit the discount_spec().
        return self._specs

    def render(self, mode: str = "rgb_array") -> Any:
        return self._env.render(mode)

    def seed(self, seed: Seed) -> Any:
        return self._env.seed(seed)

    def get_info(self) -> Any:
        return self._env.get_info()

    def get_state(self) -> Any:
        return self._env.get_state()

    def set_state(self, state: Any) -> None:
        self._env.set_state(state)
        self._current_time_step = self._standing()

    def close(self) -> None:
        self._env.close()

    def _standing(self) -> Any:
        """Returns the environment's current time step, or `None` before the first."""
        try:
            time_step = self._env.current_time_step()
        except CallOrderError:
            return None
        return self._repack(time_step)

    def _reset(self) -> Any:
        return self._repack(self._env.reset())

    def _step(self, action: NestedArray) -> Any:
        # Hot: called once per step.
        time_step = self._repack(self._env.step(action))
        if self._env.batched and not self._env.continues_after_last:
            _check_rows_begin(self._name, self._current_time_step, time_step)
        return time_step


class _TFAdapter:
    """Presents an envkit TensorFlow environment with TF-Agents' time steps."""

    def __init__(self, env: Any) -> None:
        self._env = env
        self._kind = _time_step_class()
        super().__init__(  # type: ignore[call-arg]  # TF-Agents' class comes next
            self._kind(*env.time_step_spec()), env.action_spec(), env.batch_size
        )

    def wrapped_env(self) -> Any:
        """Returns the envkit environment."""
        return self._env

    def __getattr__(self, name: str) -> Any:
        return forwarded(self, self.wrapped_env, name)

    def render(self, mode: str = "rgb_array") -> Any:
        return self._env.render(mode)

    def _current_time_step(self) -> Any:
        return self._kind(*self._env.current_time_step())

    def _reset(self) -> Any:
        return self._kind(*self._env.reset())

    def _step(self, action: NestedArray) -> Any:
        return self._kind(*self._env.step(action))


@functools.cache
def _py_environment_class() -> Any:
    from tf_agents.environments import (  # type: ignore[import-not-found]  # an environment of its own has it
        py_environment,
    )

    class ToTFAgents(_PyAdapter, py_environment.PyEnvironment):  # type: ignore[misc]  # it has no types
        """Presents an envkit environment as TF-Agents' `PyEnvironment`."""

    return ToTFAgents


@functools.cache
def _tf_environment_class() -> Any:
    from tf_agents.environments import tf_environment

    class TFToTFAgents(_TFAdapter, tf_environment.TFEnvironment):  # type: ignore[misc]  # it has no types
        """Presents an envkit TensorFlow environment as TF-Agents' `TFEnvironment`."""

    return TFToTFAgents


def _time_step_class() -> Any:
    from tf_agents.trajectories import (  # type: ignore[import-not-found]  # as above
        time_step,
    )

    return time_step.TimeStep


def _spec_for_tf_agents(spec: ArraySpec) -> Any:
    from tf_agents.specs import (  # type: ignore[import-not-found]  # as above
        array_spec,
    )

    if isinstance(spec, BoundedArraySpec):
        return array_spec.BoundedArraySpec(
            spec.shape, spec.dtype, spec.minimum, spec.maximum, spec.name
        )
    return array_spec.ArraySpec(spec.shape, spec.dtype, spec.name)


def _own_array_leaf(spec: ArraySpec) -> Leaf:
    """Returns a function like `array_leaf`'s that copies only read-only arrays."""
    shape, dtype, convert = spec.shape, spec.dtype, array_leaf(spec)

    def as_own(value: Any) -> Array:
        # Hot: called once per leaf and step. An environment's arrays belong to the
        # caller, except read-only ones: those are views that change later, and
        # TensorFlow would not copy them either.
        if (
            type(value) is np.ndarray
            and value.dtype == dtype
            and value.shape == shape
            and (value.flags.writeable or not shape)
        ):
            return value
        array: Array = convert(value)
        return array

    return as_own


_FIRST, _LAST = StepType.FIRST, StepType.LAST


def _check_rows_begin(name: str, before: Any, after: Any) -> None:
    """Raises if a row of a batch ended but has not begun the next episode."""
    ended = np.asarray(before.step_type) == _LAST
    if not ended.any():
        return
    stuck = np.flatnonzero(ended & (np.asarray(after.step_type) != _FIRST))
    if stuck.size:
        rows = f"{'row' if stuck.size == 1 else 'rows'} {listed(stuck)}"
        raise NotImplementedError(
            f"{rows} of {name} ended with the last step, and this step did not begin a "
            "new episode there. A batch must do that row by row, in the step after a "
            "LAST."
        )
