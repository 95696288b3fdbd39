"""`RowProgram`: a functional environment for many rows at once, compiled by JAX.

An environment is two pure functions of one row:

```
reset(key, params) -> observation, state
step(key, state, action, params) -> observation, state, reward, terminated, truncated,
                                    info
```

The program makes three functions for all rows from them: `begin_all`, `begin_some` and
`move`, which steps some rows, begins episodes in others and holds the rest. Each is
compiled at its first call for a number of rows, and never again for that number.

Every row has its own key. Each move of the row splits it: one half becomes the row's
new key, the other goes to `reset` or `step`. So a row's results depend on its seed and
its actions, not on other rows.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from envkit.errors import SpecError
from envkit.extend import describe
from envkit.time_step import StepType

__all__ = [
    "Answer",
    "OfEnvironment",
    "RowProgram",
    "Rows",
    "Shapes",
    "Streams",
    "drawn",
    "from_arrays",
    "host_copy",
    "keys_of",
    "on_device",
    "plain_nest",
    "program_for",
    "to_arrays",
]


class Streams(NamedTuple):
    """Holds the rows' random keys, an element for each row.

    Attributes:
        key: The key that the next move splits.
        next_key: The key that replaces it at the row's next episode, if it is seeded.
        seeded: Whether the row was seeded since its episode began.
    """

    key: Any
    next_key: Any
    seeded: Any


def keys_of(seeds: Sequence[int | None]) -> Any:
    """Returns a key for each seed: `jax.random.PRNGKey(seed)`, or a fresh one."""
    if None in seeds:
        seeds = np.random.SeedSequence().generate_state(len(seeds)).tolist()
    # JAX uses no more of an integer either.
    words = np.array([seed & 0xFFFFFFFF for seed in seeds], np.uint32)  # type: ignore[operator]  # none is None
    return _keys_of_words()(words)


@functools.cache
def _keys_of_words() -> Callable[..., Any]:
    import jax

    compiled: Callable[..., Any] = jax.jit(jax.vmap(jax.random.PRNGKey))
    return compiled


def drawn(streams: Streams, begins: Any, moves: Any) -> tuple[Streams, Any]:
    """Draws a key for each row; returns the new streams and the keys."""
    import jax
    import jax.numpy as jnp

    takes_next = (begins & streams.seeded)[:, None]
    key = jnp.where(takes_next, streams.next_key, streams.key)
    halves = jax.vmap(jax.random.split)(key)
    return (
        Streams(
            jnp.where(moves[:, None], halves[:, 0], streams.key),
            streams.next_key,
            streams.seeded & ~begins,
        ),
        halves[:, 1],
    )


_FIRST, _MID, _LAST = int(StepType.FIRST), int(StepType.MID), int(StepType.LAST)


class Rows(NamedTuple):
    """Holds the rows' current states, an element for each row.

    Attributes:
        state: The environment's state.
        ended: Whether the episode has ended, so that the next step begins another.
        terminated: Whether the episode was terminated.
        truncated: Whether it was truncated.
        info: The environment's info; zeros after a reset.
    """

    state: Any
    ended: Any
    terminated: Any
    truncated: Any
    info: Any


class Answer(NamedTuple):
    """Holds the time step of all rows, on the device; held rows' parts are ignored."""

    step_type: Any
    reward: Any
    discount: Any
    observation: Any


class Shapes(NamedTuple):
    """Holds the shapes and dtypes of one row's observation and reward."""

    observation: Any
    reward: Any


class OfEnvironment:
    """A function of an environment; equal to any other of the same environment.

    So functions compiled for one are found for the other.
    """

    __slots__ = ("_env",)

    def __init__(self, env: Any) -> None:
        """Keeps the environment."""
        self._env = env

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self._env is other._env

    def __hash__(self) -> int:
        return hash((type(self), id(self._env)))


# Stateless environments are worth keeping: every batch made from one shares its
# compiled functions.
@functools.lru_cache(maxsize=64)
def program_for(
    reset: Callable[..., Any], step: Callable[..., Any], reward_dtype: Any
) -> RowProgram:
    """Returns the program of two functions, always the same for the same functions."""
    return RowProgram(reset, step, reward_dtype)


class RowProgram:
    """Compiles an environment's functions for many rows."""

    def __init__(
        self, reset: Callable[..., Any], step: Callable[..., Any], reward_dtype: Any
    ) -> None:
        """Prepares without compiling.

        Args:
            reset: The environment's first function.
            step: Its second; the result may have `done` instead of the two flags.
            reward_dtype: The dtype of rewards.
        """
        import jax

        self._reset_row = reset
        self._step_row = step
        self._reward_dtype = reward_dtype
        self.begin_all = jax.jit(self._begin_all)
        self.begin_some = jax.jit(self._begin_some)
        self.move = jax.jit(self._move)
        # jit also caches traces that are never compiled.
        self._look = jax.jit(self._run_both)

    def shapes(self, name: str, params: Any, action: Any) -> Shapes:
        """Traces both functions to see the shapes that they return.

        Args:
            name: The environment's name in errors.
            params: Its parameters.
            action: An action of one row.

        Raises:
            SpecError: The two functions do not fit together.
        """
        (observation, state), stepped = self._look.eval_shape(params, action)
        _check_same(name, "observation", observation, stepped[0])
        _check_same(name, "state", state, stepped[1])
        return Shapes(observation, stepped[2])

    def _run_both(self, params: Any, action: Any) -> tuple[Any, Any]:
        """Resets and steps one row."""
        import jax

        key = jax.random.PRNGKey(0)
        began = self._reset(key, params)
        return began, self._step(key, began[1], action, params)

    def _reset(self, key: Any, params: Any) -> tuple[Any, Any]:
        observation, state = self._reset_row(key, params)
        return plain_nest(observation), state

    def _step(self, key: Any, state: Any, action: Any, params: Any) -> tuple[Any, ...]:
        import jax.numpy as jnp

        result = self._step_row(key, state, action, params)
        if not isinstance(result, tuple) or len(result) not in (5, 6):
            raise SpecError(
                f"The step of a functional environment returned {describe(result)}. It "
                "must return the tuple (observation, state, reward, terminated, "
                "truncated, info), or one with done instead of the two flags."
            )
        observation, state, reward, terminated, *rest = result
        truncated = rest[0] if len(rest) == 2 else False
        return (
            plain_nest(observation),
            state,
            jnp.asarray(reward, self._reward_dtype),
            jnp.asarray(terminated).astype(bool),
            jnp.asarray(truncated).astype(bool),
            rest[-1],
        )

    def _begin_all(
        self, params: Any, streams: Streams, action: Any
    ) -> tuple[Streams, Rows, Any]:
        """Begins an episode in every row."""
        import jax
        import jax.numpy as jnp

        none = jnp.zeros(streams.seeded.shape, bool)
        streams, keys = drawn(streams, ~none, ~none)
        observation, state = self._reset_rows(keys, params)
        # Only the info's shape is needed, for a placeholder.
        info = jax.eval_shape(self._step_rows, keys, state, action, params)[-1]
        zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), info)
        return streams, _firm(Rows(state, none, none, none, zeros)), observation

    def _begin_some(
        self, params: Any, streams: Streams, rows: Rows, mask: Any
    ) -> tuple[Streams, Rows, Any]:
        """Begins an episode in the masked rows; only their observations count."""
        streams, keys = drawn(streams, mask, mask)
        observation, state = self._reset_rows(keys, params)
        return streams, _firm(_begun(rows, mask, state)), observation

    def _move(
        self,
        params: Any,
        streams: Streams,
        rows: Rows,
        action: Any,
        stepping: Any,
        beginning: Any,
        discount: Any,
    ) -> tuple[Streams, Rows, Answer]:
        """Steps some rows, or begins their next episode if theirs has ended."""
        import jax
        import jax.numpy as jnp

        begins = beginning | (stepping & rows.ended)
        goes = stepping & ~rows.ended
        streams, keys = drawn(streams, begins, begins | goes)
        observation, state, reward, terminated, truncated, info = self._step_rows(
            keys, rows.state, action, params
        )
        stepped = Rows(state, terminated | truncated, terminated, truncated, info)
        rows = _chosen(goes, stepped, rows)

        def with_beginnings(_: None) -> tuple[Any, Rows]:
            first, began = self._reset_rows(keys, params)
            return _chosen(begins, first, observation), _begun(rows, begins, began)

        # Beginning may cost more than stepping, and in most steps no row begins.
        observation, rows = jax.lax.cond(
            begins.any(), with_beginnings, lambda _: (observation, rows), None
        )
        after = jnp.where(rows.ended, _LAST, _MID)
        goes_on = goes.reshape(-1, *[1] * (reward.ndim - 1))
        answer = Answer(
            jnp.where(begins, _FIRST, after).astype(jnp.int32),
            jnp.where(goes_on, reward, jnp.zeros_like(reward)),
            # An episode that ends both ways counts as terminated.
            jnp.where(begins, 1.0, jnp.where(rows.terminated, 0.0, discount)).astype(
                jnp.float32
            ),
            observation,
        )
        return streams, _firm(rows), answer

    def _reset_rows(self, keys: Any, params: Any) -> Any:
        import jax

        return jax.vmap(self._reset, in_axes=(0, None))(keys, params)

    def _step_rows(self, keys: Any, state: Any, action: Any, params: Any) -> Any:
        import jax

        step = jax.vmap(self._step, in_axes=(0, 0, 0, None))
        return step(keys, state, action, params)


def _begun(rows: Rows, mask: Any, state: Any) -> Rows:
    """Returns the rows after some have begun an episode."""
    import jax
    import jax.numpy as jnp

    zeros = jax.tree.map(jnp.zeros_like, rows.info)
    return Rows(
        _chosen(mask, state, rows.state),
        rows.ended & ~mask,
        rows.terminated & ~mask,
        rows.truncated & ~mask,
        _chosen(mask, zeros, rows.info),
    )


def _chosen(mask: Any, ours: Any, theirs: Any) -> Any:
    """Takes the masked rows from `ours`, and the others from `theirs`."""
    import jax
    import jax.numpy as jnp

    def choose(our: Any, their: Any) -> Any:
        return jnp.where(mask.reshape(-1, *[1] * (our.ndim - 1)), our, their)

    return jax.tree.map(choose, ours, theirs)


def _firm(rows: Rows) -> Rows:
    """Gives every leaf a definite dtype.

    Python numbers in a state have a weak dtype. A step given them would be compiled
    twice: for the result of `reset`, and for its own result.
    """
    import jax

    def firm(leaf: Any) -> Any:
        if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            return leaf
        return jax.lax.convert_element_type(leaf, leaf.dtype)

    firm_rows: Rows = jax.tree.map(firm, rows)
    return firm_rows


def _check_same(name: str, what: str, first: Any, second: Any) -> None:
    """Raises unless `reset` and `step` return values of the same kind."""
    import jax

    ours, theirs = jax.tree.structure(first), jax.tree.structure(second)
    if ours != theirs:
        _refuse(name, what, str(ours), str(theirs))
    pairs = zip(
        jax.tree_util.tree_flatten_with_path(first)[0],
        jax.tree.leaves(second),
        strict=True,
    )
    for (path, our), their in pairs:
        if (our.shape, our.dtype) != (their.shape, their.dtype):
            place = f"{what}{jax.tree_util.keystr(path)}"
            _refuse(name, place, _described(our), _described(their))


def _described(leaf: Any) -> str:
    return f"array of shape {leaf.shape}, dtype {leaf.dtype}"


def _refuse(name: str, what: str, first: str, second: str) -> None:
    raise SpecError(
        f"reset and step of {name} return different things as the {what}.\n\n"
        f"  reset   {first}\n"
        f"  step    {second}\n\n"
        "JAX compiles both into one function, so they have to agree."
    )


def plain_nest(tree: Any) -> Any:
    """Converts dataclasses to dictionaries, because nests have no dataclasses.

    Example:
        >>> @dataclasses.dataclass
        ... class Seen:
        ...     near: int
        >>> plain_nest((Seen(1), [2]))
        ({'near': 1}, [2])
    """
    if dataclasses.is_dataclass(tree) and not isinstance(tree, type):
        names = [field.name for field in dataclasses.fields(tree)]
        return {name: plain_nest(getattr(tree, name)) for name in names}
    if isinstance(tree, Mapping):
        return {key: plain_nest(child) for key, child in tree.items()}
    if isinstance(tree, list | tuple):
        children = [plain_nest(child) for child in tree]
        if hasattr(tree, "_make"):
            return tree._make(children)
        return tuple(children) if isinstance(tree, tuple) else children
    return tree


def host_copy(tree: Any) -> Any:
    """Copies a tree from the device at once, into writable arrays."""
    import jax

    # JAX's arrays are read-only, and on a CPU they are the device's own memory.
    return jax.tree.map(np.array, jax.device_get(tree))


def on_device(tree: Any) -> Any:
    """Copies a tree to JAX's default device."""
    import jax

    return jax.device_put(tree)


def to_arrays(tree: Any) -> list[Any]:
    """Returns the leaves of a tree as NumPy arrays.

    Typed random keys come with the name of their kind.
    """
    import jax

    leaves = jax.tree.leaves(tree)
    data = [jax.random.key_data(leaf) if _is_key(leaf) else leaf for leaf in leaves]
    arrays = [np.array(array) for array in jax.device_get(data)]
    return [
        (str(jax.random.key_impl(leaf)), array) if _is_key(leaf) else array
        for leaf, array in zip(leaves, arrays, strict=True)
    ]


def from_arrays(arrays: list[Any], like: Any) -> Any:
    """Makes a tree on the device from a result of `to_arrays`.

    Args:
        arrays: The leaves.
        like: A tree of the same structure.
    """
    import jax

    placed = [
        jax.random.wrap_key_data(leaf[1], impl=leaf[0])
        if isinstance(leaf, tuple)
        else jax.device_put(leaf)
        for leaf in arrays
    ]
    return jax.tree.unflatten(jax.tree.structure(like), placed)


def _is_key(leaf: Any) -> bool:
    import jax

    return bool(jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key))
