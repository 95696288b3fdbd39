"""Specs of tensors: converted from and to array specs, sampled, widened, cast.

The classes are TensorFlow's own, so its functions know them. Names and bounds, per
element or not, convert both ways, and a nest keeps its containers and the order of its
dictionaries. Unknown sizes are `None`, as everywhere in TensorFlow; to make a tensor or
describe an array, they must be known.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

# It has no public name, but TensorFlow's own checks look for this class.
from tensorflow.python.framework.tensor_spec import BoundedTensorSpec

from envkit import nest
from envkit.errors import SpecError
from envkit.extend import as_outer_dims, bound_text, foreign
from envkit.specs import array_spec
from envkit.specs.arrays import ArraySpec, BoundedArraySpec
from envkit.tf.sampling import floats, integers, limits, seeds_of
from envkit.tf.tf_time_step import as_written, derive_from_tf_agents
from envkit.types import Array, NestedArray, NestedSpec

__all__ = [
    "BoundedTensorSpec",
    "TensorSpec",
    "add_outer_dim",
    "add_outer_dims_nest",
    "from_spec",
    "is_bounded",
    "is_continuous",
    "is_discrete",
    "remove_outer_dims_nest",
    "sample_bounded_spec",
    "sample_spec_nest",
    "to_array_spec",
    "to_nest_array_spec",
    "with_dtype",
    "zero_spec_nest",
]

TensorSpec = tf.TensorSpec

# A sparse sample has this many elements, or as many as there is room for.
_SPARSE_ELEMENTS = 7

# Some public functions call a private one that is `as_written`, because doctest does
# not find the examples of a function that TensorFlow has wrapped.


# From array specs, and back.


def from_spec(spec: NestedSpec) -> NestedSpec:
    """Converts array specs to tensor specs; TensorFlow's specs stay as they are.

    Example:
        >>> from envkit.specs import ArraySpec
        >>> from_spec({"camera": ArraySpec((2, 2), "uint8", name="left")})
        {'camera': TensorSpec(shape=(2, 2), dtype=tf.uint8, name='left')}

    Raises:
        SpecError: A leaf is not a spec, or TensorFlow has no such dtype.
    """
    derive_from_tf_agents()  # it may be the specs of a time step
    return _mapped(_as_tensor_spec, spec)


def _as_tensor_spec(spec: Any, path: str) -> Any:
    if isinstance(spec, tf.TypeSpec):
        return spec
    if not isinstance(spec, ArraySpec):
        raise _misfit(
            f"No known conversion from {_spec_text(spec, path)} to a TensorSpec: it "
            f"must be a spec, got an object of type {type(spec).__name__}.",
            path,
        )
    try:
        # Objects may be anything, but TensorFlow takes all of them for text.
        dtype = None if spec.dtype.hasobject else tf.as_dtype(spec.dtype)
    except TypeError:
        dtype = None
    if dtype is None:
        raise _misfit(
            f"TensorFlow has no dtype for {spec.dtype}, so there is no tensor spec for "
            f"{_spec_text(spec, path)}. Use a dtype that both have, such as float32, "
            "int64 or bytes.",
            path,
        )
    if isinstance(spec, BoundedArraySpec):
        return BoundedTensorSpec(
            spec.shape, dtype, spec.minimum, spec.maximum, spec.name
        )
    return TensorSpec(spec.shape, dtype, spec.name)


def to_array_spec(tensor_spec: NestedSpec) -> NestedSpec:
    """Converts tensor specs to array specs; array specs stay as they are.

    Text has dtype `object`, as in the result of a tensor's `numpy()`.

    Example:
        >>> to_array_spec({"speed": BoundedTensorSpec([], "float32", 0, 9)})
        {'speed': BoundedArraySpec(shape=(), dtype=float32, minimum=0.0, maximum=9.0)}

    Raises:
        SpecError: A leaf is of another kind, or has an unknown size.
    """
    return _mapped(_as_array_spec, tensor_spec)


def to_nest_array_spec(nest_array_spec: NestedSpec) -> NestedSpec:
    """Does the same as `to_array_spec`."""
    return to_array_spec(nest_array_spec)


def _as_array_spec(spec: Any, path: str) -> ArraySpec:
    if isinstance(spec, ArraySpec):
        return spec
    if not isinstance(spec, tf.TensorSpec):
        raise _misfit(
            f"No known conversion from {_spec_text(spec, path)} to an ArraySpec: it "
            f"must be a TensorSpec, got an object of type {type(spec).__name__}.",
            path,
        )
    shape = _known_shape(spec, path, "An ArraySpec")
    try:
        dtype = spec.dtype.as_numpy_dtype
    except KeyError:
        raise _misfit(
            f"NumPy has no dtype for {spec.dtype.name}, so there is no array spec for "
            f"{_spec_text(spec, path)}.",
            path,
        ) from None
    if not isinstance(spec, BoundedTensorSpec) or not _is_number(spec.dtype):
        return ArraySpec(shape, dtype, spec.name)
    try:
        return BoundedArraySpec(shape, dtype, spec.minimum, spec.maximum, spec.name)
    except (TypeError, ValueError) as error:
        # TensorFlow does not check that bounds are consistent.
        raise _misfit(
            f"There is no array spec for {_spec_text(spec, path)}: {error}", path
        ) from error


# Kinds of specs.


def is_bounded(spec: Any) -> bool:
    """Returns True for a spec that has bounds.

    Example:
        >>> is_bounded(BoundedTensorSpec([], "int32", 0, 1)), is_bounded(tf.int32)
        (True, False)
    """
    return hasattr(spec, "minimum") and hasattr(spec, "maximum")


def is_discrete(spec: Any) -> bool:
    """Returns True for a spec or a dtype of integers; booleans do not count.

    Example:
        >>> is_discrete(TensorSpec([], "int32")), is_discrete(TensorSpec([], "bool"))
        (True, False)
    """
    dtype = getattr(spec, "dtype", spec)
    if isinstance(dtype, tf.DType):
        return bool(dtype.is_integer)
    return array_spec.is_discrete(spec)


def is_continuous(spec: Any) -> bool:
    """Returns True for a spec or a dtype of floats.

    Example:
        >>> is_continuous(TensorSpec([], "float16")), is_continuous(tf.string)
        (True, False)
    """
    dtype = getattr(spec, "dtype", spec)
    if isinstance(dtype, tf.DType):
        return bool(dtype.is_floating)
    return array_spec.is_continuous(spec)


# Samples and zeros.


def sample_bounded_spec(spec: Any, seed: Any = None, outer_dims: Any = None) -> Any:
    """Draws one tensor between a spec's bounds, inclusive.

    One operation draws all elements, even if their bounds differ.

    Args:
        spec: An integer or float spec with bounds.
        seed: An integer begins a stream: successive calls, and successive runs of a
            traced function, give new tensors. The same tensor of integers, or pair of
            integers, always gives the same one; see `sample_spec_nest`.
        outer_dims: As in `sample_spec_nest`.

    Example:
        >>> spec = BoundedTensorSpec([3], "int64", [0, 10, 20], [0, 11, 29])
        >>> sample = sample_bounded_spec(spec, seed=1, outer_dims=(5,))
        >>> sample.shape, bool(tf.reduce_all(sample <= spec.maximum))
        (TensorShape([5, 3]), True)
    """
    return _sample_bounded(spec, seed, outer_dims)


@as_written
def _sample_bounded(spec: Any, seed: Any, outer_dims: Any) -> Any:
    if not isinstance(spec, BoundedTensorSpec | BoundedArraySpec):
        raise TypeError(
            "The spec of sample_bounded_spec() must be a BoundedTensorSpec, got "
            f"{_spec_text(spec)}; sample_spec_nest() samples every spec."
        )
    return _Sampler(seed, outer_dims)(_as_tensor_spec(spec, ""), "")


def sample_spec_nest(
    structure: NestedSpec,
    seed: Any = None,
    outer_dims: Any = (),
    minimum: float | None = None,
    maximum: float | None = None,
) -> NestedArray:
    """Draws an independent tensor for every spec of a nest.

    Specs without bounds are sampled over the whole range of their dtype. Booleans are
    true or false with equal probability; text is a number from 0 to 10; a sparse tensor
    has a few elements.

    Args:
        structure: A nest of tensor specs.
        seed: An integer begins a stream, as in `tf.random.uniform`: successive calls,
            and successive runs of a traced function, give new tensors; each run of the
            program, and `tf.random.set_seed`, repeats the whole sequence. A tensor of
            one or two integers, or a pair of integers, always gives the same tensors.
            Code compiled by XLA obeys only this second kind; `generator.make_seeds()[:,
            0]` of a `tf.random.Generator` gives a new one in each run.
        outer_dims: Dimensions before the specs' own: sizes, which may be tensors,
            or one tensor of rank 1.
        minimum: A lower bound for all numbers, in addition to the specs' own.
        maximum: An upper bound for all numbers, in addition to the specs' own.

    Example:
        >>> spec = {"move": BoundedTensorSpec([2], "int32", 0, 3)}
        >>> sample_spec_nest(spec, seed=1, outer_dims=(5,))["move"].shape
        TensorShape([5, 2])
    """
    return _sample_nest(structure, seed, outer_dims, minimum, maximum)


@as_written
def _sample_nest(
    structure: NestedSpec, seed: Any, outer_dims: Any, minimum: Any, maximum: Any
) -> NestedArray:
    sample = _Sampler(seed, outer_dims, minimum, maximum)

    def sampled(spec: Any, path: str) -> Any:
        return sample(_as_known_kind(spec, path, TypeError), path)

    return _mapped(sampled, structure)


def zero_spec_nest(specs: NestedSpec, outer_dims: Any = None) -> NestedArray:
    """Returns a tensor of zeros for every spec of a nest, whatever the bounds.

    Args:
        specs: A nest of tensor specs.
        outer_dims: As in `sample_spec_nest`.

    Example:
        >>> zero_spec_nest([TensorSpec([2], "float32")], outer_dims=(3,))[0].shape
        TensorShape([3, 2])
    """
    return _zero_nest(specs, outer_dims)


@as_written
def _zero_nest(specs: NestedSpec, outer_dims: Any) -> NestedArray:
    sizes = _as_sizes(outer_dims)

    def zeros(spec: Any, path: str) -> Any:
        dense = _as_dense(spec, path, NotImplementedError)
        shape = _known_shape(dense, path, "A tensor of zeros")
        return tf.zeros(_joined(sizes, shape), dense.dtype)

    return _mapped(zeros, specs)


class _Sampler:
    """Draws a tensor for each spec that it is called with, all from one seed."""

    def __init__(
        self, seed: Any, outer_dims: Any, minimum: Any = None, maximum: Any = None
    ) -> None:
        for name, bound in (("minimum", minimum), ("maximum", maximum)):
            is_number = isinstance(bound, numbers.Real) and not math.isnan(bound)
            if bound is not None and not is_number:
                raise TypeError(f"{name} must be a number, got {bound!r:.80}.")
        self._seeds = seeds_of(seed)
        self._sizes = _as_sizes(outer_dims)
        self._is_narrowed = minimum is not None or maximum is not None
        self._minimum = -math.inf if minimum is None else minimum
        self._maximum = math.inf if maximum is None else maximum

    def __call__(self, spec: Any, path: str) -> Any:
        if isinstance(spec, tf.SparseTensorSpec):
            return self._sparse(spec, path)
        shape = _joined(self._sizes, _known_shape(spec, path, "A sample"))
        return self._values(spec, path, shape)

    def _values(self, spec: Any, path: str, shape: Any) -> Any:
        dtype = spec.dtype
        seed = next(self._seeds)
        if dtype == tf.string:
            return tf.strings.as_string(
                integers(tf.int32, np.array(0), np.array(10), shape, seed)
            )
        low, high = _bounds(spec, path)
        if self._is_narrowed and dtype != tf.bool:
            low, high = self._narrowed(spec, path, low, high)
        draw = floats if dtype.is_floating else integers
        return draw(dtype, low, high, shape, seed)

    def _sparse(self, spec: Any, path: str) -> Any:
        if not isinstance(self._sizes, tuple):
            raise NotImplementedError(
                f"{_spec_text(spec, path)} can only be sampled with outer_dims that "
                "are known when the function is traced."
            )
        shape = (*self._sizes, *_known_shape(spec, path, "A sample"))
        room = math.prod(shape)
        count = min(_SPARSE_ELEMENTS, room)
        # One element from each of equal parts: no two have the same position, and they
        # come in the order that sparse tensors need.
        ends = [room * part // count for part in range(count + 1)] if count else [0]
        places = integers(
            tf.int64,
            np.array(ends[:-1], np.int64),
            np.array(ends[1:], np.int64) - 1,
            [count],
            next(self._seeds),
        )
        strides = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
        indices = (places[:, None] // np.array(strides, np.int64)) % np.array(
            shape, np.int64
        )
        values = self._values(tf.TensorSpec([], spec.dtype), path, [count])
        return tf.SparseTensor(indices, values, shape)

    def _narrowed(
        self, spec: Any, path: str, low: Array, high: Array
    ) -> tuple[Array, Array]:
        least, most = self._minimum, self._maximum
        if spec.dtype.is_integer:
            least = math.ceil(least) if math.isfinite(least) else least
            most = math.floor(most) if math.isfinite(most) else most
        new_low = _clipped(_exact(low), least, math.inf)
        new_high = _clipped(_exact(high), -math.inf, most)
        if np.any(new_low > new_high):
            raise _misfit(
                f"{_spec_text(spec, path)} has no values left: they are between "
                f"{bound_text(low)} and {bound_text(high)}, and must be between "
                f"{least} and {most}.",
                path,
            )
        return _stored(new_low, spec.dtype), _stored(new_high, spec.dtype)


def _bounds(spec: Any, path: str) -> tuple[Array, Array]:
    """Returns the checked bounds of a spec, or the limits of its dtype."""
    dtype = spec.dtype
    if not _has_order(dtype):
        raise TypeError(
            f"Cannot sample {_spec_text(spec, path)}: no random value is defined for "
            f"{dtype.name}."
        )
    if not isinstance(spec, BoundedTensorSpec):
        lowest, highest = limits(dtype)
        return _stored(np.array(lowest), dtype), _stored(np.array(highest), dtype)
    # TensorFlow does not check that they are consistent.
    low, high = spec.minimum, spec.maximum
    if not np.all(low <= high):  # written this way because NaN fails it too
        raise _misfit(
            f"{_spec_text(spec, path)} has no values: its minimum is "
            f"{bound_text(low)}, its maximum {bound_text(high)}.",
            path,
        )
    # TensorFlow checks compatibility, but the result may still be larger.
    shape = tuple(spec.shape.as_list())
    if any(np.broadcast_shapes(bound.shape, shape) != shape for bound in (low, high)):
        raise _misfit(
            f"{_spec_text(spec, path)} has bounds of shapes {low.shape} and "
            f"{high.shape}, which do not broadcast to its own.",
            path,
        )
    return low, high


def _as_sizes(outer_dims: Any) -> Any:
    """Returns sizes as a tuple, or as a tensor if they are not known yet."""
    if outer_dims is None:
        return ()
    if isinstance(outer_dims, list | tuple) and any(map(tf.is_tensor, outer_dims)):
        outer_dims = tf.stack([tf.cast(size, tf.int32) for size in outer_dims])
    if isinstance(outer_dims, tf.TensorShape):
        outer_dims = outer_dims.as_list()
    if not tf.is_tensor(outer_dims):
        return tuple(int(size) for size in as_outer_dims(outer_dims))
    sizes = tf.convert_to_tensor(outer_dims)
    if not sizes.dtype.is_integer or sizes.shape.rank not in (1, None):
        raise TypeError(
            "outer_dims must be a sequence of sizes, got a tensor of shape "
            f"{sizes.shape}, dtype {sizes.dtype.name}."
        )
    known = tf.get_static_value(sizes)
    if known is not None:
        return as_outer_dims(known.tolist())
    return sizes if sizes.dtype == tf.int64 else tf.cast(sizes, tf.int32)


def _joined(sizes: Any, shape: Sequence[int]) -> Any:
    """Returns the shape of a tensor, as a list if it is fully known."""
    if isinstance(sizes, tuple):
        return [*sizes, *shape]
    return tf.concat([sizes, tf.constant(shape, sizes.dtype, [len(shape)])], axis=0)


# Other shapes and dtypes.


def add_outer_dims_nest(
    specs: NestedSpec, outer_dims: Sequence[int | None]
) -> NestedSpec:
    """Prepends `outer_dims` to the shape of every spec; bounds and names stay.

    Example:
        >>> add_outer_dims_nest([TensorSpec([3], "float32")], (None, 2))
        [TensorSpec(shape=(None, 2, 3), dtype=tf.float32, name=None)]
    """
    return _add_outer_dims(specs, outer_dims)


def add_outer_dim(specs: NestedSpec, dim: int | None = None) -> NestedSpec:
    """Prepends one dimension to the shape of every spec; of any size, unless given.

    Example:
        >>> add_outer_dim(TensorSpec([3], "float32"))
        TensorSpec(shape=(None, 3), dtype=tf.float32, name=None)
    """
    return _add_outer_dims(specs, (dim,))


@as_written
def _add_outer_dims(specs: NestedSpec, outer_dims: Any) -> NestedSpec:
    if not isinstance(outer_dims, list | tuple):
        raise ValueError(
            f"outer_dims must be a tuple or list of dimensions, got {outer_dims!r:.80}."
        )
    sizes = [
        tf.get_static_value(size) if tf.is_tensor(size) else size for size in outer_dims
    ]
    as_outer_dims([size for size in sizes if size is not None])
    dims = tf.TensorShape(sizes)

    def longer(spec: Any, path: str) -> Any:
        spec = _as_known_kind(spec, path)
        shape = dims.concatenate(spec.shape)
        if isinstance(spec, BoundedTensorSpec):
            return _bounded_like(spec, shape, spec.minimum, spec.maximum)
        return _unbounded_like(spec, shape, spec.dtype)

    return _mapped(longer, specs)


def remove_outer_dims_nest(tensor_specs: NestedSpec, num_outer_dims: int) -> NestedSpec:
    """Removes the first `num_outer_dims` dimensions from the shape of every spec.

    Bounds that differ along a removed dimension widen to cover all of them.

    Example:
        >>> remove_outer_dims_nest(TensorSpec([None, 3], "float32"), 1)
        TensorSpec(shape=(3,), dtype=tf.float32, name=None)
    """
    return _remove_outer_dims(tensor_specs, num_outer_dims)


@as_written
def _remove_outer_dims(specs: NestedSpec, count: Any) -> NestedSpec:
    if not isinstance(count, numbers.Integral):
        raise TypeError(f"num_outer_dims must be an integer, got {count!r:.80}.")

    def shorter(spec: Any, path: str) -> Any:
        return _without_outer_dims(_as_known_kind(spec, path), path, int(count))

    return _mapped(shorter, specs)


def _without_outer_dims(spec: Any, path: str, count: int) -> Any:
    rank = spec.shape.rank
    if count < 0 or (rank is not None and count > rank):
        has = "" if rank is None else f", which has {rank}"
        raise _misfit(
            f"Cannot remove {count} outer dimensions from {_spec_text(spec, path)}"
            f"{has}.",
            path,
        )
    if count == 0:
        return spec
    shape = spec.shape[count:]
    if not isinstance(spec, BoundedTensorSpec):
        return _unbounded_like(spec, shape, spec.dtype)
    # If the remaining dimensions are unknown, one bound holds for all elements.
    rank = shape.rank or 0
    if max(spec.minimum.ndim, spec.maximum.ndim) <= rank:
        return _bounded_like(spec, shape, spec.minimum, spec.maximum)
    if not _has_order(spec.dtype):
        # Text and complex numbers have no smallest value to hold for all rows.
        return _unbounded_like(spec, shape, spec.dtype)
    lowest, highest = limits(spec.dtype)
    low = _reduced(spec.minimum, rank, np.min, lowest)
    high = _reduced(spec.maximum, rank, np.max, highest)
    return _bounded_like(spec, shape, low, high)


def with_dtype(specs: NestedSpec, dtype: Any) -> NestedSpec:
    """Returns tensor specs that differ only in their dtype.

    Bounds beyond the dtype become its limits, integer bounds lose their fractions, and
    specs of anything but numbers get no bounds.

    Example:
        >>> with_dtype(BoundedTensorSpec([], "float32", -1.5, 1.5, "pedal"), "int8")
        ... # doctest: +NORMALIZE_WHITESPACE
        BoundedTensorSpec(shape=(), dtype=tf.int8, name='pedal',
            minimum=array(-1, dtype=int8), maximum=array(1, dtype=int8))
    """
    wanted = tf.as_dtype(dtype)
    return _mapped(lambda spec, path: _cast(spec, path, wanted), specs)


def _cast(spec: Any, path: str, dtype: Any) -> Any:
    spec = _as_known_kind(spec, path)
    has_bounds = isinstance(spec, BoundedTensorSpec) and _has_order(spec.dtype)
    if not has_bounds or not _is_number(dtype):
        return _unbounded_like(spec, spec.shape, dtype)
    lowest, highest = limits(dtype)
    low, high = _exact(spec.minimum), _exact(spec.maximum)
    # Written this way because NaN fails it too.
    if not np.all((low <= highest) & (high >= lowest)):
        raise _misfit(
            f"{_spec_text(spec, path)} has no values in common with {dtype.name}: they "
            f"are between {bound_text(spec.minimum)} and {bound_text(spec.maximum)}.",
            path,
        )
    return BoundedTensorSpec(
        spec.shape,
        dtype,
        _stored(_clipped(low, lowest, highest), dtype),
        _stored(_clipped(high, lowest, highest), dtype),
        spec.name,
    )


def _bounded_like(spec: Any, shape: Any, low: Any, high: Any) -> Any:
    return BoundedTensorSpec(shape, spec.dtype, low, high, spec.name)


def _unbounded_like(spec: Any, shape: Any, dtype: Any) -> Any:
    if isinstance(spec, tf.SparseTensorSpec):
        return tf.SparseTensorSpec(shape, dtype)
    return tf.TensorSpec(shape, dtype, spec.name)


# Leaves, and their names in errors.


@as_written
def _mapped(function: Callable[[Any, str], Any], structure: Any) -> Any:
    """Applies a function to every leaf of a nest and its path."""
    leaves = [function(leaf, path) for path, leaf in nest.flatten_with_paths(structure)]
    return nest.unflatten_as(structure, leaves)


def _as_known_kind(
    spec: Any, path: str, error: type[Exception] = NotImplementedError
) -> Any:
    """Returns the spec of a dense or sparse tensor; raises `error` for other kinds."""
    if isinstance(spec, tf.SparseTensorSpec):
        return spec
    return _as_dense(spec, path, error)


def _as_dense(spec: Any, path: str, error: type[Exception]) -> Any:
    """Returns the spec of a dense tensor; raises `error` for other kinds."""
    if isinstance(spec, ArraySpec | tf.TensorSpec):
        return _as_tensor_spec(spec, path)
    message = f"Spec type not supported{_place_text(path)}: {_spec_text(spec)}"
    if isinstance(spec, tf.TypeSpec):
        raise error(f"{message}.")
    raise TypeError(
        f"{message}, which must be a tensor spec, got an object of type "
        f"{type(spec).__name__}."
    )


def _known_shape(spec: Any, path: str, purpose: str) -> tuple[int, ...]:
    """Returns a spec's shape; all its sizes must be known for `purpose`."""
    shape = spec.shape
    if not shape.is_fully_defined():
        raise _misfit(
            f"{purpose} needs all sizes, and {_spec_text(spec, path)} leaves some "
            "open.",
            path,
        )
    return tuple(shape.as_list())


def _misfit(message: str, path: str) -> SpecError:
    error = SpecError(message)
    error.path = path
    return error


def _spec_text(spec: Any, path: str = "") -> str:
    if isinstance(spec, tf.TensorSpec):
        # Those with bounds would write out all of them.
        text = f"{type(spec).__name__}(shape={spec.shape}, dtype={spec.dtype.name})"
    else:
        own = repr(spec) if isinstance(spec, ArraySpec) else f"{spec!r:.80}"
        text = foreign(spec) or own
    return text + _place_text(path)


def _place_text(path: str) -> str:
    return f" at {path}" if path else ""  # a nest that is one leaf has no paths


# Bounds, compared and clipped exactly.


def _is_number(dtype: Any) -> bool:
    """Returns True for a dtype of ordered numbers."""
    return bool(dtype.is_integer or dtype.is_floating)


def _has_order(dtype: Any) -> bool:
    """Returns True for a dtype whose values have an order."""
    return _is_number(dtype) or bool(dtype == tf.bool)


def _exact(bound: Array) -> Any:
    """Returns a bound as Python numbers, which compare exactly with all others."""
    if bound.dtype.kind in "iub":
        return bound.astype(object)
    # TensorFlow's float dtypes that NumPy lacks are smaller than this one.
    return bound.astype(np.float64).astype(object)


def _clipped(bound: Array, lowest: Any, highest: Any) -> Array:
    """Returns an `_exact` bound, clipped to two numbers."""
    # NumPy would turn single integers into int64, and not all of them fit.
    clipped = [min(max(value, lowest), highest) for value in bound.flat]
    return np.array(clipped, dtype=object).reshape(bound.shape)


def _stored(bound: Array, dtype: Any) -> Array:
    """Returns an `_exact` bound as an array of a TensorFlow dtype."""
    wide = bound if dtype.is_integer else bound.astype(np.float64)
    return wide.astype(dtype.as_numpy_dtype)


def _reduced(bound: Array, rank: int, reduce: Any, limit: Any) -> Any:
    """Removes dimensions from a bound until it has no more than `rank`."""
    extra = bound.ndim - rank
    if extra <= 0:
        return bound
    if not bound.size:  # there are no rows, so the dtype's limit holds
        return limit
    return reduce(bound, axis=tuple(range(extra)))
