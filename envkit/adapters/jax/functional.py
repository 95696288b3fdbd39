"""`FunctionalEnvironment`: pure JAX functions as a batch on the device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from envkit import nest
from envkit._shared.arguments import as_discount
from envkit._shared.states import check_state_of
from envkit.adapters.foreign import ForeignBase, require
from envkit.adapters.jax.program import (
    Answer,
    Rows,
    Streams,
    from_arrays,
    host_copy,
    keys_of,
    on_device,
    program_for,
    to_arrays,
)
from envkit.adapters.values import (
    Converter,
    Leaf,
    array_leaf,
    bounded_leaf,
    map_specs,
    map_with_paths,
)
from envkit.extend import ActionRows, checked_size, describe
from envkit.provenance import record_seed
from envkit.py_environment import PyEnvironment
from envkit.seeding import seed_per_row
from envkit.specs.arrays import ArraySpec
from envkit.time_step import StepType, TimeStep
from envkit.types import Array, NestedArray, NestedSpec, Seed

__all__ = ["FunctionalEnvironment", "check_single", "spec_of_shapes"]

_FIRST, _LAST = int(StepType.FIRST), int(StepType.LAST)
_SINGLE = ", or None for a single environment"


class FunctionalEnvironment(ForeignBase):
    """Makes an environment, or a batch, from two pure JAX functions.

    ```
    reset(key, params) -> observation, state
    step(key, state, action, params) -> observation, state, reward, terminated,
                                        truncated, info
    ```

    Both are for one row. They are mapped over all rows and compiled together with
    automatic resets, so a step of the batch is one call and one transfer from JAX's
    default device. Single rows can be reset and held.

    The first reset and the first step compile; after that, only another `batch_size`
    compiles again. Environments of the same functions share compiled code.

    A state may be any JAX tree, of the same shapes and dtypes in both functions.
    Observations may be nests, and may contain dataclasses.

    Each move of a row splits its key: `key, used = split(key)`. So a row depends on its
    seed and actions only, except that XLA may round differently for another number of
    rows. `reset(mask)` and `step(action, mask)` run in the compiled functions; a held
    row keeps its key. `get_state` returns the device's arrays as NumPy arrays.

    Example:
        >>> import jax.numpy as jnp  # doctest: +SKIP
        >>> def reset(key, params):
        ...     return jnp.float32(0), jnp.int32(0)
        >>> def step(key, state, action, params):
        ...     state = state + action
        ...     return jnp.float32(state), state, action, state >= 3, False, {}
        >>> way = BoundedArraySpec((), np.int32, 0, 1)  # doctest: +SKIP
        >>> env = FunctionalEnvironment(reset, step, way, batch_size=2)
        ... # doctest: +SKIP
        >>> env.reset().observation  # doctest: +SKIP
        array([0., 0.], dtype=float32)
        >>> env.step([0, 1]).observation  # doctest: +SKIP
        array([0., 1.], dtype=float32)
    """

    def __init__(
        self,
        reset: Callable[..., Any],
        step: Callable[..., Any],
        action_spec: NestedSpec,
        observation_spec: NestedSpec | None = None,
        *,
        params: Any = None,
        batch_size: int | None = None,
        seed: Seed = None,
        discount: float = 1.0,
        reward_dtype: Any = np.float32,
        name: str | None = None,
    ) -> None:
        """Makes a single environment, or a batch.

        Args:
            reset: Begins an episode.
            step: Continues it. Instead of the two flags it may return one, `done`,
                which means termination. It does not begin the next episode.
            action_spec: The specs of one row's action.
            observation_spec: The specs of its observation, with the shapes and dtypes
                that `reset` returns; `None` for specs without bounds.
            params: Passed to both functions as `params`: any JAX tree.
            batch_size: The number of rows; `None` for a single environment.
            seed: The seed, as if passed to `seed()`.
            discount: The discount of steps that do not terminate the episode.
            reward_dtype: The dtype of rewards.
            name: The environment's name in errors; `None` for the name of `step`.
        """
        require("jax", needed_by=type(self).__name__, extra="jax")
        super().__init__()
        if batch_size is not None:
            batch_size = checked_size("batch_size", batch_size, hint=_SINGLE)
        self._batch_size = batch_size
        self._num_rows = 1 if batch_size is None else batch_size
        kind = type(step).__qualname__
        self._name = str(name or getattr(step, "__qualname__", kind))
        self._params = params
        self._discount = np.float32(as_discount(discount))
        self._action_spec = action_spec
        call = f"{type(self).__name__}.step()"
        self._actions = _RowActions(action_spec, self._num_rows, call)
        self._program = program_for(reset, step, np.dtype(reward_dtype))
        self._look(observation_spec)
        self._prepare()
        # Not seed(): a subclass may override it and use attributes it does not have
        # yet.
        self._give_keys(seed)

    def _look(self, observation_spec: NestedSpec | None) -> None:
        """Finds and keeps the specs, including those of the functions' results."""
        shapes = self._program.shapes(self._name, self._params, self._actions.example)
        found = spec_of_shapes(shapes.observation, "observation")
        self._reward_spec = spec_of_shapes(shapes.reward, "reward")
        if observation_spec is None:
            observation_spec = self._find_observation_spec(found)
        self._observation_spec = observation_spec
        self._observation = nest.Structure(self._observation_spec)
        if _plain(self._observation_spec) != _plain(found):
            raise ValueError(
                f"The observation_spec does not describe what {self._name} observes."
                f"\n\n  given      {self._observation_spec}\n  observed   {found}"
            )

    def _find_observation_spec(self, found: NestedSpec) -> NestedSpec:
        """Returns the observation's specs, given those without bounds."""
        return found

    def _prepare(self) -> None:
        shape = (self._num_rows,)
        # Arguments of most steps, kept on the device so that they need not be sent.
        self._all, self._none = on_device((np.ones(shape, bool), np.zeros(shape, bool)))
        self._streams: Streams | None = None
        self._rows: Rows | None = None
        # The rows whose episode has ended; the device has a copy.
        self._ended = np.zeros(shape, bool)

    @property
    def params(self) -> Any:
        """The parameters of the environment."""
        return self._params

    @property
    def state(self) -> Any:
        """The states of the rows, on the device; `None` before the first reset."""
        return None if self._rows is None else self._rows.state

    def seed(self, seed: Seed) -> None:
        """Gives each row a key, which it uses from its next episode on.

        The key of a seed is `jax.random.PRNGKey(seed)`. One integer gives each row of a
        batch its own seed, and a single environment that seed itself.
        """
        self._give_keys(seed)

    def _give_keys(self, seed: Seed) -> None:
        record_seed(self, seed)
        seeds: Any = seed
        if self._batch_size is None and np.ndim(seeds) == 0:
            seeds = [seed]  # used as it is, like a single row's in a sequence
        keys = keys_of(seed_per_row(seeds, self._num_rows))
        key = keys if self._streams is None else self._streams.key
        self._streams = Streams(key, keys, self._all)

    def _seed_rows(self, seeds: list[int | None]) -> None:
        import jax.numpy as jnp

        streams: Any = self._streams
        given = np.array([seed is not None for seed in seeds])
        keys = keys_of([0 if seed is None else seed for seed in seeds])
        next_key = jnp.where(given[:, np.newaxis], keys, streams.next_key)
        self._streams = Streams(streams.key, next_key, streams.seeded | given)

    def get_info(self) -> dict[str, Any]:
        """Returns the info of the current time step, with an element for each row.

        It includes the environment's info, `terminated` and `truncated`. At the
        beginning of an episode its numbers are zeros. It stays on the device until you
        ask for it; before the first reset it is empty.
        """
        rows = self._rows
        if rows is None:
            return {}
        info = rows.info if isinstance(rows.info, dict) else {"info": rows.info}
        flags = {"terminated": rows.terminated, "truncated": rows.truncated}
        told: dict[str, Any] = host_copy({**info, **flags})
        if self._batch_size is not None:
            return told
        import jax

        return jax.tree.map(_first_row, told)  # type: ignore[no-any-return]  # a dict

    def _close(self) -> None:
        self._rows = None  # they are on the device

    def _draw(self, mode: str) -> Any:
        return PyEnvironment.render(self, mode)  # says that there are no pictures

    def _reset(self) -> TimeStep:
        self._check_open("reset")
        self._streams, self._rows, observation = self._program.begin_all(
            self._params, self._streams, self._actions.none
        )
        self._ended = np.zeros(self._num_rows, bool)
        time_step = self._first_time_step(observation)
        if self._batch_size is not None:
            return time_step
        return self._without_rows(time_step)

    def _reset_rows(self, mask: Array) -> TimeStep:
        self._check_open("reset")
        self._streams, self._rows, observation = self._program.begin_some(
            self._params, self._streams, self._rows, mask
        )
        self._ended = self._ended & ~mask
        return self._first_time_step(observation)

    def _first_time_step(self, observation: Any) -> TimeStep:
        spec = self._reward_spec
        return TimeStep(
            np.full(self._num_rows, _FIRST, np.int32),
            np.zeros((self._num_rows, *spec.shape), spec.dtype),
            np.ones(self._num_rows, np.float32),
            host_copy(observation),
        )

    def _step(self, action: NestedArray) -> TimeStep:
        # Hot: called once per batch step.
        if self._closed:
            self._check_open("step")
        if self._batch_size is not None:
            return self._move(
                self._actions.of_rows(action, self._ended), self._all, None
            )
        actions = self._actions.none if self._ended[0] else self._actions.of_one(action)
        return self._without_rows(self._move(actions, self._all, None))

    def _step_rows(
        self, action: NestedArray, stepping: Array, beginning: Array
    ) -> TimeStep:
        self._check_open("step")
        ignored = self._ended | ~stepping
        return self._move(self._actions.of_rows(action, ignored), stepping, beginning)

    def _move(self, actions: Any, stepping: Any, beginning: Array | None) -> TimeStep:
        # Hot: called once per batch step.
        self._streams, self._rows, answer = self._program.move(
            self._params,
            self._streams,
            self._rows,
            actions,
            stepping,
            self._none if beginning is None else beginning,
            self._discount,
        )
        told: Answer = host_copy(answer)
        ended = told.step_type == _LAST
        if beginning is None:
            self._ended = ended
        else:
            moved = np.asarray(stepping) | beginning
            self._ended = np.where(moved, ended, self._ended)
        return TimeStep(*told)

    def _without_rows(self, time_step: TimeStep) -> TimeStep:
        """Makes a single environment's time step from that of its only row."""
        return TimeStep(
            _first_row(time_step.step_type),
            _first_row(time_step.reward),
            _first_row(time_step.discount),
            self._observation.map(_first_row, time_step.observation),
        )

    def _get_state(self) -> dict[str, Any]:
        self._check_open("get_state")
        rows = None if self._rows is None else to_arrays(self._rows)
        return {
            "of": self._description(),
            "streams": to_arrays(self._streams),
            "rows": rows,
        }

    def _set_state(self, state: Any) -> None:
        self._check_open("set_state")
        check_state_of(self, state, self._description())
        self._streams = from_arrays(state["streams"], self._streams)
        self._rows, self._ended = None, np.zeros(self._num_rows, bool)
        if state["rows"] is not None:
            self._rows = from_arrays(state["rows"], self._shapes_of_rows())
            self._ended = np.array(self._rows.ended)

    def _shapes_of_rows(self) -> Any:
        return self._program.begin_all.eval_shape(
            self._params, self._streams, self._actions.none
        )[1]

    def _description(self) -> str:
        """Describes the environment, for comparison with that of a state."""
        import jax

        shapes = [leaf.shape[1:] for leaf in jax.tree.leaves(self._shapes_of_rows())]
        return f"{self._name} of batch_size {self._batch_size} and shapes {shapes}"


def check_single(
    env: Any,
    needed: tuple[str, ...],
    *,
    inner: str,
    wrapper: str,
    library: str,
    maker: str,
) -> None:
    """Raises unless this is a library's environment for one row and one episode.

    Args:
        env: The argument of a wrapper.
        needed: The attributes that such environments have.
        inner: The attribute in which the library's wrappers hold their environment.
        wrapper: The name of envkit's wrapper, for messages.
        library: The name of the library.
        maker: The call that makes such an environment.

    Raises:
        TypeError: It is something else, or inside one of the library's wrappers that
            begin episodes or map rows.
    """
    if isinstance(env, type) or not all(hasattr(env, name) for name in needed):
        what = f"the class {env.__name__}" if isinstance(env, type) else describe(env)
        raise TypeError(
            f"{wrapper} was given {what}, which is not an environment of {library}. "
            f"{maker} makes one."
        )
    layer = env
    while layer is not None:
        kind = type(layer).__name__
        if "AutoReset" in kind or "Vmap" in kind:
            raise TypeError(
                f"{wrapper} was given an environment in {library}'s {kind}. envkit "
                "begins episodes and maps rows itself: pass the environment that "
                f"{maker} makes."
            )
        layer = vars(layer).get(inner)


def _plain(spec: NestedSpec) -> NestedSpec:
    """Returns specs without bounds and names, for comparison."""
    return map_specs(lambda leaf: ArraySpec(leaf.shape, leaf.dtype), spec)


def _first_row(array: Array) -> Array:
    return array.reshape(array.shape[1:])


class _RowActions:
    """Checks actions, and converts them to the dtypes of the specs.

    Attributes:
        none: The actions of rows that begin an episode: zeros for all rows.

    Example:
        >>> actions = _RowActions(ArraySpec((), np.int32), 2, "step()")
        >>> actions.of_rows([1, 2], ignored=np.zeros(2, bool))
        array([1, 2], dtype=int32)
        >>> actions.of_one(3)
        array([3], dtype=int32)
    """

    def __init__(self, spec: NestedSpec, rows: int, call: str) -> None:
        """Prepares for the actions of `rows` rows, given to `call`."""
        self._rows = ActionRows(spec, rows, call)
        self._structure = self._rows.structure
        self._spec = spec
        self._convert = Converter(
            spec,
            map_specs(_leaf, spec),
            subject=f"{call} was given an action that",
            root="action",
        )
        self.none: Any = self._structure.map(lambda leaf: _zeros(leaf, rows), spec)

    @property
    def example(self) -> Any:
        """An action of one row: zeros."""
        return self._structure.map(_zeros, self._spec)

    def of_rows(self, action: NestedArray, ignored: Array) -> Any:
        """Returns the actions of all rows, or raises before anything has changed."""
        # Hot: called once per batch step.
        columns = self._rows.columns(action, ignored=ignored)
        # An ignored row's action may be anything, even too large for its dtype.
        return self._structure.unflatten(
            [
                column if column.dtype == spec.dtype else column.astype(spec.dtype)
                for column, spec in zip(columns, self._structure.leaves, strict=True)
            ]
        )

    def of_one(self, action: NestedArray) -> Any:
        """Returns a single environment's action, with a dimension of rows."""
        return self._structure.map(_with_row, self._convert(action))


def _leaf(spec: ArraySpec) -> Leaf:
    # Many policies exceed float bounds on purpose, and environments clip.
    return bounded_leaf(spec) if spec.dtype.kind in "iu" else array_leaf(spec)


def _zeros(spec: ArraySpec, *dims: int) -> Array:
    return np.zeros((*dims, *spec.shape), spec.dtype)


def _with_row(array: Array) -> Array:
    return array[np.newaxis]


def spec_of_shapes(shapes: Any, name: str) -> NestedSpec:
    """Returns specs without bounds for a nest of shapes and dtypes."""
    return map_with_paths(
        lambda leaf, _: ArraySpec(leaf.shape, np.dtype(leaf.dtype), name), shapes
    )
