"""Connects envkit to JAX: any environment as part of a compiled program.

Outside the adapters, only this module imports JAX. Without JAX, importing the module
raises a `MissingDependencyError`.

```
compiled   action -> io_callback(environment.step) -> leaves -> time step
```

The callbacks are ordered, so the environment steps in the order of the program, and
only one call runs at a time.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, TypeVar

import numpy as np

from envkit import nest
from envkit._shared.installed import is_installed
from envkit.async_environment import AsyncEnvironment
from envkit.errors import MissingDependencyError, SpecError
from envkit.extend import (
    ACCEPTED_KINDS,
    as_environment,
    describe,
    flatten_as,
    foreign,
    listed,
    rely_on_size,
)
from envkit.py_environment import PyEnvironment
from envkit.specs.arrays import ArraySpec
from envkit.specs.validation import check_fits
from envkit.time_step import TimeStep
from envkit.types import Array, NestedArray, NestedSpec

# Checked before it is imported, because a broken installation raises its own error.
if not is_installed("jax"):
    raise MissingDependencyError.needed_by(__name__, package="jax", extra="jax")

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap
from jax.experimental import io_callback

__all__ = ["JitEnvironment", "step_in_jit"]

Self = TypeVar("Self", bound="JitEnvironment")

# All of JAX's dtypes: booleans, integers, floats and complex numbers.
_KINDS = "biufc"


def step_in_jit(
    env: PyEnvironment, dtypes: Mapping[Any, Any] | None = None
) -> JitEnvironment:
    """Returns an environment whose `reset` and `step` can be called in `jax.jit`.

    Args:
        env: A single environment, a batch or a pool in lockstep. You still own and
            close it; nothing else may step it while a program does.
        dtypes: JAX's dtypes by NumPy's, such as `{np.float64: np.float32}`; others stay
            as they are.

    Raises:
        SpecError: JAX has no arrays for a part of the time steps, or is not configured
            for 64 bits.

    Example:
        >>> import envkit
        >>> env = step_in_jit(envkit.make("CartPole", batch_size=2, seed=1))
        >>> def act(time_step, _):
        ...     action = (time_step.observation[:, 2] > 0).astype(jnp.int32)
        ...     return env.step(action), time_step.reward
        >>> @env.jit
        ... def play():
        ...     return jax.lax.scan(act, env.reset(), length=20)
        >>> last, rewards = play()
        >>> rewards.shape
        (20, 2)
        >>> env.close()
    """
    return JitEnvironment(env, dtypes)


class JitEnvironment:
    """Makes an environment take and return JAX arrays, even in compiled programs.

    `step_in_jit` makes one. Time steps are pytrees of JAX arrays, and an observation
    keeps its nest. Public attributes that this class lacks are looked up in the
    environment. No gradients pass through an environment: to JAX, an action is a
    constant.

    Attributes:
        pyenv: The environment.
    """

    def __init__(
        self, env: PyEnvironment, dtypes: Mapping[Any, Any] | None = None
    ) -> None:
        """Wraps an environment; takes the arguments of `step_in_jit`."""
        env = as_environment(env)
        _check_environment(env)
        self.pyenv = env
        rows = env.batch_size if env.batched else None
        dims = () if rows is None else (rows,)
        name = type(env).__name__
        self._time_steps = _TimeSteps(env.time_step_spec(), dims, name, dtypes)
        self._actions = _Actions(env.action_spec(), dims)
        self._rows = rows
        rely_on_size(self, env)
        # The environment's error in a program that has not ended yet.
        self._raised: BaseException | None = None
        # Compiled, so that a call outside a program takes the same path.
        results = self._time_steps.results
        mask = [jax.ShapeDtypeStruct(dims, np.bool_)]
        self._now_program = self._program(self._run_now, results)
        self._reset_program = self._program(self._run_reset, results)
        self._step_program = self._program(self._run_step, results)
        self._repaired_program = self._program(self._run_repaired, mask)
        self._valid_program = self._program(self._run_valid, mask)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "pyenv":
            raise AttributeError(
                f"{type(self).__name__!r} object has no attribute {name!r}"
            )
        return getattr(self.pyenv, name)

    def reset(self, mask: Any = None) -> TimeStep:
        """Starts an episode and returns the time step of all rows.

        Args:
            mask: The rows of a batch that start an episode; `None` for all.
        """
        inputs = () if mask is None else (self._as_mask(mask, "reset"),)
        return self._time_step(self._reset_program, *inputs)

    def step(self, action: NestedArray, mask: Any = None) -> TimeStep:
        """Applies an action to each row and returns the resulting time step.

        After a `LAST`, the row's next episode starts in the order of the environment's
        `autoreset`.

        Args:
            action: An action, or for a batch one per row: arrays or numbers.
            mask: The rows of a batch that step; the others stay where they are.

        Raises:
            SpecError: The action does not fit, which is found when a program is traced.
        """
        leaves = self._actions.leaves(action)
        inputs = () if mask is None else (self._as_mask(mask, "step"),)
        return self._time_step(self._step_program, leaves, *inputs)

    def current_time_step(self) -> TimeStep:
        """Returns the current time step, on which a policy should act."""
        return self._time_step(self._now_program)

    @property
    def repaired(self) -> Any:
        """A mask of the rows whose last time step is a made-up `LAST`.

        In a program it is that of the last step before it.
        """
        return self._finished(self._repaired_program)[0]

    @property
    def valid(self) -> Any:
        """A mask of the rows whose last time step is new, and from an environment.

        In a program it is that of the last step before it.
        """
        return self._finished(self._valid_program)[0]

    def jit(self, function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
        """Compiles a function that steps the environment.

        It works like `jax.jit`, waits for the results, and the call raises the
        environment's own error. A program of plain `jax.jit` raises a
        `JaxRuntimeError` with its text instead.

        Args:
            function: The function to compile.
            **options: The options of `jax.jit`.
        """
        program = jax.jit(function, **options)

        @functools.wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            return self._finished(program, *args, **kwargs)

        return run

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.pyenv.close()

    def __repr__(self) -> str:
        return f"JitEnvironment({self.pyenv!r})"

    # Outside the callbacks.

    def _as_mask(self, mask: Any, call: str) -> Any:
        if self._rows is None:
            raise ValueError(
                f"JitEnvironment.{call}() was given a mask, and "
                f"{type(self.pyenv).__name__} is a single environment, which has no "
                "rows. Leave the mask out."
            )
        array = jnp.asarray(mask)
        if array.dtype != np.bool_ or array.shape != (self._rows,):
            raise ValueError(
                f"The mask of JitEnvironment.{call}() must be an array of "
                f"{self._rows} booleans, got {array.dtype} of shape {array.shape}."
            )
        return array

    def _time_step(self, program: Callable[..., Any], *inputs: Any) -> TimeStep:
        leaves = self._finished(program, *inputs)
        return self._time_steps.packed(leaves)

    def _finished(self, program: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Runs a program to its end; raises the environment's error, if any."""
        self._raised = None
        try:
            result = program(*args, **kwargs)
            # While an outer program is traced, there is nothing to wait for.
            if not any(
                isinstance(it, jax.core.Tracer) for it in jax.tree.leaves(result)
            ):
                jax.block_until_ready(result)
                jax.effects_barrier()
            return result
        except RuntimeError:  # JAX's error, which has only the text
            if self._raised is None:
                raise
        raised, self._raised = self._raised, None
        raise raised

    def _program(
        self, run: Callable[..., list[Array]], results: Sequence[Any]
    ) -> Callable[..., Any]:
        """Compiles a call of the environment."""

        def called(*inputs: Any) -> Any:
            inputs = jax.tree.map(_guarded, inputs)
            return io_callback(run, results, *inputs, ordered=True)

        return jax.jit(called)  # type: ignore[no-any-return]  # JAX's

    # In the callbacks, which may run in another thread.

    def _run_now(self) -> list[Array]:
        return self._answered("current_time_step", self.pyenv.current_time_step)

    def _run_reset(self, *mask: Any) -> list[Array]:
        # The arrays are JAX's memory, which is freed after the callback.
        return self._answered("reset", self.pyenv.reset, *map(np.array, mask))

    def _run_step(self, leaves: Sequence[Any], *mask: Any) -> list[Array]:
        # Hot: called once per step.
        action = self._actions.arrays(leaves)
        return self._answered("step", self.pyenv.step, action, *map(np.array, mask))

    def _run_repaired(self) -> list[Array]:
        return [np.array(self.pyenv.repaired)]

    def _run_valid(self) -> list[Array]:
        repaired = self.pyenv.repaired
        return [np.array(getattr(self.pyenv, "valid", True) & ~repaired)]

    def _answered(
        self, call: str, function: Callable[..., TimeStep], *args: Any
    ) -> list[Array]:
        # Hot: called once per step.
        try:
            return self._time_steps.arrays(function(*args), call)
        except BaseException as error:
            self._raised = error
            raise


@custom_vmap  # type: ignore[untyped-decorator]  # JAX's
def _without_vmap(array: Any) -> Any:
    return array


@_without_vmap.def_vmap  # type: ignore[untyped-decorator]  # JAX's
def _refuse_vmap(axis_size: int, in_batched: Any, array: Any) -> Any:
    raise TypeError(
        "An environment cannot be stepped in jax.vmap: it is one environment, and "
        f"{axis_size} steps of it at once would need as many. Make a batch of "
        f"{axis_size} rows, and step it with one action for each row."
    )


def _guarded(array: Any) -> Any:
    """Returns an input without a gradient, which `vmap` must not map."""
    return _without_vmap(jax.lax.stop_gradient(array))


def _check_environment(env: Any) -> None:
    if isinstance(env, AsyncEnvironment):
        raise TypeError(
            "step_in_jit() must be given an environment in lockstep, and "
            f"{type(env).__name__} is asynchronous: wrap it in envkit.Blocking first."
        )
    if not isinstance(env, PyEnvironment):
        raise TypeError(
            "step_in_jit() must be given an environment, got "
            f"{foreign(env) or describe(env)}."
        )


class _TimeSteps:
    """Converts time steps of an environment for JAX.

    Attributes:
        results: The shape and dtype of each leaf in JAX.
    """

    def __init__(
        self,
        spec: TimeStep,
        dims: tuple[int, ...],
        name: str,
        dtypes: Mapping[Any, Any] | None,
    ) -> None:
        self._structure = nest.Structure(spec)
        self._paths = [path for path, _ in nest.flatten_with_paths(spec)]
        self._dims, self._name = dims, name
        _check_pytree(spec, name)
        given = _checked_dtypes(dtypes)
        leaves = self._structure.leaves
        self.results = [
            jax.ShapeDtypeStruct((*dims, *leaf.shape), _in_jax(leaf, path, name, given))
            for leaf, path in zip(leaves, self._paths, strict=True)
        ]
        self._expected = [
            ((*dims, *leaf.shape), leaf.dtype, np.dtype(result.dtype))
            for leaf, result in zip(leaves, self.results, strict=True)
        ]

    def packed(self, leaves: Sequence[Any]) -> TimeStep:
        """Returns the time step with these leaves."""
        return self._structure.unflatten(leaves)  # type: ignore[no-any-return]

    def arrays(self, time_step: TimeStep, call: str) -> list[Array]:
        """Returns the leaves of the time step that `call` returned.

        JAX copies them before the environment steps again.

        Raises:
            SpecError: A leaf does not fit its spec, or its dtype in JAX.
        """
        # Hot: called once per step.
        subject = f"{self._name}.{call}() returned a time step that"
        leaves = flatten_as(self._structure, time_step, subject=subject)
        for index, (shape, dtype, result) in enumerate(self._expected):
            leaf = leaves[index]
            if (
                type(leaf) is not np.ndarray
                or leaf.shape != shape
                or leaf.dtype != dtype
            ):
                template = self._structure.template
                check_fits(time_step, template, subject=subject, outer_dims=self._dims)
                leaf = np.asarray(leaf, dtype)
            if result != dtype:
                leaf = self._converted(leaf, result, index, call)
            leaves[index] = leaf
        return leaves

    def _converted(self, leaf: Array, dtype: Any, index: int, call: str) -> Array:
        cast = leaf.astype(dtype)
        if leaf.dtype.kind in "iu" and not np.array_equal(cast, leaf):
            raise SpecError(
                f"{self._name}.{call}() returned {leaf[cast != leaf].flat[0]} at "
                f"{self._paths[index]}, which {dtype} cannot hold. Choose a larger "
                f"one for {leaf.dtype} in the dtypes of step_in_jit()."
            )
        return cast


def _check_pytree(spec: TimeStep, name: str) -> None:
    """Refuses containers that JAX treats as leaves."""
    leaves = jax.tree.leaves(spec)
    known = {id(leaf) for leaf in leaves}
    for path, leaf in nest.flatten_with_paths(spec):
        if id(leaf) in known:
            continue
        kinds = {type(leaf) for leaf in leaves if not isinstance(leaf, ArraySpec)}
        raise SpecError(
            f"{path} of the time steps of {name} is in a container that JAX does not "
            f"know: {listed(sorted(kind.__name__ for kind in kinds))}. Register the "
            "class with jax.tree_util.register_pytree_node, or use dictionaries, lists "
            "and tuples."
        )


def _checked_dtypes(dtypes: Any) -> dict[np.dtype[Any], np.dtype[Any]]:
    must = (
        "dtypes must be a dictionary of NumPy's dtypes and others, such as "
        "{np.float64: np.float32}, got"
    )
    if dtypes is None:
        return {}
    if not isinstance(dtypes, Mapping):
        raise TypeError(f"{must} {describe(dtypes)}.")
    try:
        return {np.dtype(key): np.dtype(value) for key, value in dtypes.items()}
    except TypeError as error:
        raise TypeError(f"{must} {dtypes!r}.") from error


def _in_jax(
    spec: ArraySpec,
    path: str,
    name: str,
    dtypes: Mapping[np.dtype[Any], np.dtype[Any]],
) -> np.dtype[Any]:
    """Returns a leaf's dtype in JAX."""
    dtype = dtypes.get(spec.dtype, spec.dtype)
    if dtype.kind not in _KINDS or dtype.itemsize > np.dtype(np.complex128).itemsize:
        raise SpecError(
            f"JAX has no arrays of {dtype}, which {name} returns at {path}. Convert it "
            "with a wrapper, or leave it out with one."
        )
    narrow = np.dtype(jax.dtypes.canonicalize_dtype(dtype))
    if narrow != dtype:
        raise SpecError(
            f"JAX has no arrays of {dtype} as it is configured, and {name} returns "
            f"one at {path}. Ask for another with step_in_jit(env, "
            f"dtypes={{np.{dtype}: np.{narrow}}}), or allow 64 bits at the beginning "
            'of the program: jax.config.update("jax_enable_x64", True).'
        )
    return dtype


class _Actions:
    """Converts actions from JAX for an environment."""

    def __init__(self, spec: NestedSpec, dims: tuple[int, ...]) -> None:
        self._structure = nest.Structure(spec)
        self._dims = dims

    def leaves(self, action: NestedArray) -> list[Any]:
        """Returns the leaves of an action as JAX arrays; raises if they do not fit."""
        subject = "JitEnvironment.step() was given an action that"
        given = flatten_as(self._structure, action, subject=subject, root="action")
        arrays = []
        for leaf, spec, path in zip(
            given, self._structure.leaves, self._structure.paths, strict=True
        ):
            array = jnp.asarray(leaf)
            if jnp.issubdtype(array.dtype, jnp.floating) and array.dtype.kind != "f":
                array = array.astype(np.float32)  # NumPy does not know bfloat16
            shape = (*self._dims, *spec.shape)
            kinds = ACCEPTED_KINDS.get(spec.dtype.kind, spec.dtype.kind)
            if array.shape != shape or array.dtype.kind not in kinds:
                what = "shape" if array.shape != shape else "dtype"
                raise SpecError.does_not_fit(
                    subject,
                    path=nest.join("action", path),
                    root="action",
                    expected=repr(spec.replace(shape=shape)),
                    got=f"{array.dtype} of shape {array.shape}",
                    reason=f"The {what} is another one.",
                )
            arrays.append(array)
        return arrays

    def arrays(self, leaves: Sequence[Any]) -> NestedArray:
        """Returns an action for the environment, in its own memory."""
        # Hot: called once per step.
        arrays = []
        for leaf, spec in zip(leaves, self._structure.leaves, strict=True):
            array = np.array(leaf)
            if array.dtype != spec.dtype and np.can_cast(array.dtype, spec.dtype):
                array = array.astype(spec.dtype)
            arrays.append(array)
        return self._structure.unflatten(arrays)
