"""Makes a Python environment take and return tensors: `TFPyEnvironment`.

Eagerly, the action's arrays go to the environment, and its arrays become tensors. In a
graph, each call is one `tf.numpy_function`.

```
eager    action -> arrays ----------------> environment.step -> arrays -> tensors
graph    action -> leaves -> numpy_function(environment.step) -> leaves -> tensors
```

Time steps are checked before TensorFlow gets them, because a graph relies on the shapes
of its tracing.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from envkit._shared.closing import closes_at_once
from envkit.batched_py_environment import BatchedPyEnvironment
from envkit.errors import CallOrderError, ClosedError, SpecError
from envkit.extend import as_environment, describe, foreign, rely_on_size
from envkit.py_environment import PyEnvironment
from envkit.registry import constructor
from envkit.specs.arrays import BoundedArraySpec
from envkit.tf import tensor_spec
from envkit.tf.checkpoints import restore_state, state_bytes
from envkit.tf.leaves import ActionLeaves, TimeStepLeaves
from envkit.tf.tf_environment import TFEnvironment
from envkit.tf.tf_time_step import as_written
from envkit.tf.threads import CallersThread, thread_for
from envkit.time_step import AutoReset, StepType, TimeStep
from envkit.types import Array, NestedArray

__all__ = ["TFPyEnvironment", "as_tf_environment"]


class TFPyEnvironment(
    TFEnvironment,
    tf.train.experimental.PythonState,  # type: ignore[misc]  # TensorFlow has no types
):
    """Makes a TensorFlow environment of any Python environment.

    It can be stepped eagerly and in graphs, including `tf.while_loop` and `tf.data`.
    Public attributes that this class lacks are looked up in the Python environment. In
    a `tf.train.Checkpoint` it saves the environment's state.

    Attributes:
        pyenv: The Python environment as a batch; a single environment becomes a batch
            of one.

    Example:
        >>> import envkit
        >>> env = TFPyEnvironment(envkit.make("CartPole", batch_size=2, seed=1))
        >>> env.reset().observation.shape
        TensorShape([2, 4])
        >>> @tf.function
        ... def ten_steps():
        ...     earned = tf.zeros([2])
        ...     for _ in tf.range(10):
        ...         earned += env.step(tf.constant([0, 1])).reward
        ...     return earned
        >>> bool(tf.reduce_all(ten_steps() > 5.0))
        True
        >>> env.close()
    """

    def __init__(
        self,
        environment: PyEnvironment | Callable[[], PyEnvironment] | str,
        check_dims: bool = False,
        isolation: Any = False,
    ) -> None:
        """Wraps an environment; closing the wrapper closes it.

        Args:
            environment: A Python environment, a constructor of one, or a name that
                `envkit.make` accepts. A constructor is called in the thread in which
                the environment will run.
            check_dims: True to refuse actions that do not have a batch's shape before
                they reach the environment.
            isolation: True to make all calls to the environment in one dedicated
                thread, one after the other; or a thread pool to use instead. If False,
                each call runs in the thread that makes it, and two at once are an
                error.
        """
        self._thread = thread_for(isolation)
        try:
            env, is_ours = self._thread.run("__init__", _batch_of, environment)
            self._take(env, is_ours, check_dims)
        except BaseException:
            self._thread.close()
            raise

    def _take(self, env: PyEnvironment, is_ours: bool, check_dims: bool) -> None:
        try:
            spec = env.time_step_spec()
            tensors = tensor_spec.from_spec(spec)
            action_spec = env.action_spec()
            rows: int = env.batch_size  # type: ignore[assignment]  # a batch has one
            super().__init__(tensors, tensor_spec.from_spec(action_spec), rows)
            self._time_steps = TimeStepLeaves(spec, tensors, rows)
            self._actions = ActionLeaves(
                action_spec, rows, "TFPyEnvironment.step()", check_dims=check_dims
            )
        except BaseException:
            # The owner of a given environment closes it.
            if is_ours:
                self._thread.run("close", env.close)
            raise
        self.pyenv = env
        rely_on_size(self, env)
        self._alone = env if isinstance(env, _BatchOfOne) else None
        self._is_isolated = not isinstance(self._thread, CallersThread)
        self._picture_shape: tf.TensorShape | None = None
        self._has_begun = self._has_closed = False
        name = type(self._alone.envs[0] if self._alone else env).__name__
        self._now_name = f"{name}.current_time_step()"
        self._reset_name, self._step_name = f"{name}.reset()", f"{name}.step()"

    def __getattr__(self, name: str) -> Any:
        # Private names are not forwarded, because TensorFlow and `copy` ask for some
        # before there is an environment.
        if name.startswith("_") or name == "pyenv":
            raise AttributeError(
                f"{type(self).__name__!r} object has no attribute {name!r}"
            )
        if self._is_isolated and not self._has_closed:
            # A property may need the environment's thread.
            value = self._thread.run(name, self._attribute, name)
        else:
            value = self._attribute(name)
        return self._in_thread(value) if inspect.ismethod(value) else value

    @property
    def name(self) -> str:
        """The environment's own name, if it has one."""
        if self._given_name is not None:
            return self._given_name
        try:
            return self.__getattr__("name")  # type: ignore[no-any-return]  # of any kind
        except AttributeError:
            return super().name

    @name.setter
    def name(self, name: str) -> None:
        self._given_name = name

    @property
    def autoreset(self) -> AutoReset:
        """When the next episode begins after a `LAST`; can be set, for graphs too."""
        return self._run("autoreset", getattr, self.pyenv, "autoreset")  # type: ignore[no-any-return]  # an order

    @autoreset.setter
    def autoreset(self, order: AutoReset | str) -> None:
        self._run("autoreset", setattr, self.pyenv, "autoreset", order)

    @property
    @as_written
    def repaired(self) -> Any:
        """A boolean tensor of the rows whose last time step is a made-up `LAST`.

        Their environment was lost on the way to it. In a graph, the mask is for the
        last step before it; `losses()` and `current_losses()` only work outside of
        graphs.
        """
        if tf.executing_eagerly():
            return tf.constant(self._run("repaired", self._lost_rows))
        run = functools.partial(self._run, "repaired", self._lost_rows)
        repaired = tf.numpy_function(run, [], tf.bool, name="repaired")
        repaired.set_shape([self.batch_size])
        return repaired

    def _lost_rows(self) -> Array:
        return np.array(self.pyenv.repaired)

    def _attribute(self, name: str) -> Any:
        try:
            return getattr(self.pyenv, name)
        except AttributeError:
            if self._alone is None:
                raise
        return getattr(self._alone.envs[0], name)

    def _in_thread(self, method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def run(*args: Any, **kwargs: Any) -> Any:
            return self._run(
                method.__name__, functools.partial(method, *args, **kwargs)
            )

        return run

    # Each call has a short path and a path through a graph. AutoGraph must not rewrite
    # them, nor the environment's own code.

    def _current_time_step(self) -> TimeStep:
        if tf.executing_eagerly():
            return self._eagerly("current_time_step", self._now)
        return self._through_graph("current_time_step", self._now, [])

    def _reset(self) -> TimeStep:
        if tf.executing_eagerly():
            return self._eagerly("reset", self._begin)
        return self._through_graph("reset", self._begin, [])

    def _reset_rows(self, mask: Any) -> TimeStep:
        if tf.executing_eagerly():
            return self._eagerly("reset", self._begin_rows, mask)
        return self._through_graph("reset", self._begin_rows, [mask])

    def _step(self, action: NestedArray) -> TimeStep:
        if tf.executing_eagerly():
            return self._eagerly("step", self._advance_by, action)
        return self._step_through_graph(action)

    @as_written
    def _eagerly(self, call: str, function: Callable[..., Any], *args: Any) -> TimeStep:
        return self._time_steps.tensors(self._run(call, function, *args))

    @as_written
    def _step_through_graph(self, action: NestedArray) -> TimeStep:
        return self._through_graph("step", self._advance, self._actions.tensors(action))

    @as_written
    def _through_graph(
        self, call: str, function: Callable[..., Any], inputs: Sequence[Any]
    ) -> TimeStep:
        run = functools.partial(self._run, call, function)
        return self._time_steps.packed(
            tf.numpy_function(run, inputs, self._time_steps.dtypes, name=call)
        )

    def _run(self, call: str, function: Callable[..., Any], *args: Any) -> Any:
        """Runs a function in the environment's thread."""
        # Hot: called once per step.
        if self._has_closed:
            raise ClosedError.used(type(self).__name__, call)
        return self._thread.run(call, function, *args)

    # In the environment's thread, with arrays.

    def _now(self) -> list[Array]:
        try:
            time_step = self.pyenv.current_time_step()
        except CallOrderError:
            # The first call begins an episode; a later error has another reason.
            if self._has_begun:
                raise
            return self._begin()
        return self._time_steps.arrays(time_step, self._now_name)

    def _begin(self, mask: Array | None = None) -> list[Array]:
        time_step = self.pyenv.reset(mask)
        self._has_begun = True
        return self._time_steps.arrays(time_step, self._reset_name)

    def _begin_rows(self, mask: Any) -> list[Array]:
        self._now()
        return self._begin(np.array(mask))

    def _advance_by(self, action: NestedArray) -> list[Array]:
        # Hot: called once per step eagerly.
        arrays = self._actions.arrays(self._actions.flat(action))
        if self._alone is not None:
            columns = self._noted(self._alone.step_columns(arrays))
            return self._time_steps.aligned(columns)
        time_step = self._advance_batch(arrays)
        return self._time_steps.arrays(time_step, self._step_name)

    def _advance(self, *leaves: Any) -> list[Array]:
        # Hot: called once per step by graphs.
        alone = self._alone
        if alone is not None:
            columns = alone.step_number(leaves)
            if columns is None:
                columns = alone.step_columns(self._actions.arrays(leaves))
            return self._noted(columns)
        arrays = self._actions.arrays(leaves)
        time_step = self._advance_batch(arrays)
        return self._time_steps.for_graph(time_step, self._step_name)

    def _noted(self, columns: list[Array]) -> list[Array]:
        if not self._has_begun:  # setting an attribute of a module takes long
            self._has_begun = True
        return self._time_steps.encoded(columns)

    def _advance_batch(self, arrays: list[Array]) -> TimeStep:
        time_step = self.pyenv.step(self._actions.packed(arrays))
        if not self._has_begun:
            self._has_begun = True
        return time_step

    # Pictures.

    def render(self, mode: str = "rgb_array") -> Any:
        """Returns uint8 pictures of the current state, one per row.

        Args:
            mode: "rgb_array"; or "human" to make the environment show itself, which
                returns black pictures.
        """
        if tf.executing_eagerly():
            return self._render_eagerly(mode)
        return self._render_through_graph(mode)

    @as_written
    def _render_eagerly(self, mode: Any) -> Any:
        return tf.constant(self._run("render", self._picture, mode))

    @as_written
    def _render_through_graph(self, mode: Any) -> Any:
        # A graph needs the size of the pictures, and only the environment knows it.
        shape = self._run("render", self._picture, "rgb_array").shape

        def run(mode: Any) -> Array:
            picture: Array = self._run("render", self._picture, mode)
            if picture.shape != shape:
                raise SpecError(
                    f"render() returned a picture of shape {picture.shape} in a graph "
                    f"that was traced with pictures of shape {shape}. Call render() "
                    "outside of the graph."
                )
            return picture

        picture = tf.numpy_function(run, [mode], tf.uint8, name="render")
        picture.set_shape(shape)
        return picture

    def _picture(self, mode: Any) -> Array:
        # A graph passes text as bytes.
        mode = mode.decode() if isinstance(mode, bytes) else str(mode)
        if mode not in ("rgb_array", "human"):
            raise ValueError(
                "The mode of TFPyEnvironment.render() must be 'rgb_array', or 'human' "
                f"for black pictures, got {mode!r}. For others call "
                "env.pyenv.render(mode)."
            )
        self._now()
        if mode == "human":
            self.pyenv.render(mode)
            if self._picture_shape is not None:
                return np.zeros(self._picture_shape.as_list(), np.uint8)
        picture = np.array(self.pyenv.render("rgb_array"), np.uint8)
        self._picture_shape = tf.TensorShape(picture.shape)
        return picture if mode == "rgb_array" else np.zeros_like(picture)

    # State.

    def get_state(self) -> Any:
        """Returns the environment's state, for `set_state`."""
        return self._run("get_state", self.pyenv.get_state)

    def set_state(self, state: Any) -> None:
        """Restores a state returned by `get_state`."""
        self._restore(self.pyenv.set_state, state)

    def serialize(self) -> bytes:
        """Returns the environment's state; TensorFlow calls this to save it."""
        state: bytes = self._run("get_state", state_bytes, self.pyenv)
        return state

    def deserialize(self, string_value: bytes) -> None:
        """Restores a state; TensorFlow calls this when it restores a checkpoint."""
        self._restore(restore_state, self.pyenv, string_value)

    def _restore(self, function: Callable[..., Any], *args: Any) -> None:
        self._run("set_state", function, *args)
        # The state may be from before the first episode.
        self._has_begun = False

    def close(self) -> None:
        """Closes the environment and ends its thread, if it has one."""
        if self._has_closed:
            return
        if closes_at_once(_innermost(self.pyenv)):
            # In this thread, because that ends a call running in another one.
            try:
                self._end()
            finally:
                self._thread.close()
            return
        try:
            self._thread.run("close", self._end)
        finally:
            # If it was refused, a call is running and the environment stays open.
            if self._has_closed:
                self._thread.close()

    def _end(self) -> None:
        self._has_closed = True
        self.pyenv.close()


def _innermost(env: Any) -> Any:
    """Returns the environment inside all wrappers, and inside a batch of one."""
    if isinstance(env, _BatchOfOne):
        env = env.envs[0]
    return getattr(env, "unwrapped", env)


def _batch_of(environment: Any) -> tuple[PyEnvironment, bool]:
    """Returns a batch, and True if it was made here."""
    is_ready = isinstance(environment, PyEnvironment)
    if isinstance(environment, str):
        environment = constructor(environment)
    env = environment() if callable(environment) and not is_ready else environment
    if not isinstance(env, TFEnvironment):
        env = as_environment(env)
    if not isinstance(env, PyEnvironment):
        raise TypeError(_no_environment(environment, env))
    if env.batched:
        return env, not is_ready
    return _BatchOfOne(env), not is_ready


def _no_environment(given: Any, env: Any) -> str:
    got = describe(env)
    if given is not env:
        is_class = isinstance(given, type)
        maker = f"the class {given.__name__}" if is_class else describe(given)
        got = f"{maker}, which returned {got}"
    if foreign(env):
        return f"TFPyEnvironment was given {got}."
    if isinstance(env, TFEnvironment):
        hint = "It is a TensorFlow environment already."
    elif hasattr(env, "recv"):
        hint = "Wrap an asynchronous environment: TFPyEnvironment(Blocking(env))."
    elif hasattr(env, "time_step_spec") and hasattr(env, "step"):
        hint = (
            "It looks like an environment of another library: see envkit.adapters, "
            "such as from_tf_agents(env)."
        )
    else:
        hint = "Pass a PyEnvironment, or something to call that makes one."
    return f"TFPyEnvironment was given {got}. {hint}"


_MID, _LAST = StepType.MID, StepType.LAST
_ONE = (1,)
_ENDED = np.ones(1, bool)
_ENDED.setflags(write=False)


class _BatchOfOne(BatchedPyEnvironment):
    """Makes a batch of one single environment, with a shorter path for its leaves.

    Its current time step is always the environment's.
    """

    _kept: TimeStep | None = None
    # The environment checks its own first time steps.
    _calls_to_look_at = ()

    def __init__(self, env: PyEnvironment) -> None:
        super().__init__([env], multithreading=False)
        # If an action is one of a few numbers: their dtype, the first and the last.
        self._numbers: tuple[Any, int, int] | None = None
        spec = self.action_spec()
        is_one = isinstance(spec, BoundedArraySpec) and spec.shape == ()
        if is_one and spec.dtype.kind in "iu":
            self._numbers = spec.dtype, int(spec.minimum), int(spec.maximum)

    @property
    def _current_time_step(self) -> TimeStep | None:
        # Environments of other libraries keep theirs elsewhere.
        return self._stacked_current() or self._kept

    @_current_time_step.setter
    def _current_time_step(self, time_step: TimeStep | None) -> None:
        self._kept = time_step

    def step_number(self, leaves: Sequence[Any]) -> list[Array] | None:
        """Does the work of `step_columns` within an episode, for one number as action.

        Returns `None` without doing anything if there is more to check.
        """
        # Hot: called once per step by graphs.
        (env,) = self._envs
        current = getattr(env, "_current_time_step", None)
        if (
            self._numbers is None
            or current is None
            or current.step_type is not _MID
            or self._closed
            or self._envkit.order is not None
        ):
            return None
        (leaf,), (dtype, least, most) = leaves, self._numbers
        if (
            type(leaf) is not np.ndarray
            or leaf.dtype is not dtype
            or leaf.shape != _ONE
        ):
            return None
        number = leaf[0]
        if not least <= number <= most:
            return None
        try:
            time_step = env.step(number)
        except Exception as error:
            raise self._calls.failed("step", [(0, error)])  # noqa: B904  # it is the same
        return self._columns([time_step])

    def step_columns(self, columns: Sequence[Array]) -> list[Array]:
        """Steps with the leaves of an action, and returns copies of a time step's."""
        # Hot: called once per step. The rest of `step` is for several rows.
        (env,) = self._envs
        current = getattr(env, "_current_time_step", None)
        structure = self._actions.structure
        if current is None or self._closed or self._envkit.order is not None:
            return self._time_step.flatten(self.step(structure.unflatten(columns)))
        # After a LAST that may be padding, the environment handles the step itself.
        ended = (
            current.step_type is not _MID
            and bool(current.step_type == _LAST)
            and not (self._repeats_last or self._continues)
        )
        columns = self._actions.columns_of(
            columns, 1, ignored=_ENDED if ended else None
        )
        try:
            if ended:
                time_step = env.reset()
            else:
                action = structure.unflatten([column[0] for column in columns])
                time_step = env.step(action)
        except Exception as error:
            raise self._calls.failed("step", [(0, error)])  # noqa: B904  # it is the same
        return self._columns([time_step])

    def _columns(self, time_steps: list[TimeStep]) -> list[Array]:
        # Hot: called once per step.
        columns, array = [], np.array
        try:
            leaves = self._time_step.flatten(time_steps[0])
            for leaf, place in zip(leaves, self._places, strict=True):
                dtype, shape, rank = place[:3]
                if leaf.dtype is not dtype or leaf.shape != shape:
                    raise SpecError
                columns.append(array(leaf, ndmin=rank))
        except (AttributeError, SpecError):
            # Not necessarily wrong: the slow path converts or refuses.
            return super()._columns(time_steps)
        return columns


def as_tf_environment(environment: PyEnvironment | TFEnvironment) -> TFEnvironment:
    """Returns a TensorFlow environment; one that is given is returned unchanged."""
    if isinstance(environment, TFEnvironment):
        return environment
    return TFPyEnvironment(environment)
