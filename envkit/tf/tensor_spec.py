"""What a tensor must look like: specs of TensorFlow, made of specs of arrays and back.

The classes are TensorFlow's own, so whatever else looks at them knows them. Names and
bounds, per element or not, go both ways, and a nest keeps its containers and the order
of its dictionaries. Sizes that are not known yet are `None`, as everywhere in
TensorFlow; where a tensor must be made, or an array described, they must be known.
"""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

# It has no public name, and it is the class that TensorFlow's own checks look for.
from tensorflow.python.framework.tensor_spec import BoundedTensorSpec

from envkit.specs import array_spec
from envkit.specs.array_spec import ArraySpec, BoundedArraySpec
from envkit.specs.batching import as_outer_dims
from envkit.tf.autograph import as_written
from envkit.tf.outer_dims import as_sizes, joined
from envkit.tf.spec_bounds import is_number
from envkit.tf.spec_leaves import known_shape, mapped, misfit, place_text, spec_text
from envkit.tf.spec_sampling import Sampler
from envkit.tf.spec_shapes import longer, shorter, with_other_dtype
from envkit.tf.tf_time_step import derive_from_tf_agents
from envkit.types import NestedArray, NestedSpec

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


def from_spec(spec: NestedSpec) -> NestedSpec:
    """Makes tensor specs of array specs; specs of TensorFlow stay as they are.

    Example:
        >>> from envkit.specs import ArraySpec
        >>> from_spec({"camera": ArraySpec((2, 2), "uint8", name="left")})
        {'camera': TensorSpec(shape=(2, 2), dtype=tf.uint8, name='left')}

    Raises:
        SpecError: A leaf is no spec, or TensorFlow has no such dtype.
    """
    derive_from_tf_agents()  # It may be the specs of a time step.
    return mapped(_as_tensor_spec, spec)


def to_array_spec(tensor_spec: NestedSpec) -> NestedSpec:
    """Makes array specs of tensor specs; array specs stay as they are.

    Text has dtype `object`: so it comes out of a tensor's `numpy()`.

    Example:
        >>> to_array_spec({"speed": BoundedTensorSpec([], "float32", 0, 9)})
        {'speed': BoundedArraySpec(shape=(), dtype=float32, minimum=0.0, maximum=9.0)}

    Raises:
        SpecError: A leaf is of another kind, or a size of it is not known.
    """
    return mapped(_as_array_spec, tensor_spec)


def to_nest_array_spec(nest_array_spec: NestedSpec) -> NestedSpec:
    """Does the same as `to_array_spec`."""
    return to_array_spec(nest_array_spec)


def is_bounded(spec: Any) -> bool:
    """Says whether a spec has bounds.

    Example:
        >>> is_bounded(BoundedTensorSpec([], "int32", 0, 1)), is_bounded(tf.int32)
        (True, False)
    """
    return hasattr(spec, "minimum") and hasattr(spec, "maximum")


def is_discrete(spec: Any) -> bool:
    """Says whether a spec, or a dtype, is of integers; booleans are none.

    Example:
        >>> is_discrete(TensorSpec([], "int32")), is_discrete(TensorSpec([], "bool"))
        (True, False)
    """
    dtype = getattr(spec, "dtype", spec)
    if isinstance(dtype, tf.DType):
        return bool(dtype.is_integer)
    return array_spec.is_discrete(spec)


def is_continuous(spec: Any) -> bool:
    """Says whether a spec, or a dtype, is of floating numbers.

    Example:
        >>> is_continuous(TensorSpec([], "float16")), is_continuous(tf.string)
        (True, False)
    """
    dtype = getattr(spec, "dtype", spec)
    if isinstance(dtype, tf.DType):
        return bool(dtype.is_floating)
    return array_spec.is_continuous(spec)


def sample_bounded_spec(spec: Any, seed: Any = None, outer_dims: Any = None) -> Any:
    """Draws one tensor between a spec's bounds, both included.

    However the bounds differ from element to element, one operation draws them all.

    Args:
        spec: An integer or floating spec with bounds.
        seed: An integer begins a stream: successive calls, and successive runs of a
            traced function, give new tensors. The same tensor of integers, or pair of
            them, always gives the same one; `sample_spec_nest` says more.
        outer_dims: As for `sample_spec_nest`.

    Example:
        >>> spec = BoundedTensorSpec([3], "int64", [0, 10, 20], [0, 11, 29])
        >>> sample = sample_bounded_spec(spec, seed=1, outer_dims=(5,))
        >>> sample.shape, bool(tf.reduce_all(sample <= spec.maximum))
        (TensorShape([5, 3]), True)
    """
    return _sample_bounded(spec, seed, outer_dims)


def sample_spec_nest(
    structure: NestedSpec,
    seed: Any = None,
    outer_dims: Any = (),
    minimum: float | None = None,
    maximum: float | None = None,
) -> NestedArray:
    """Draws a tensor for every spec of a nest, each independent of the others.

    Specs without bounds are sampled over everything their dtype can hold. Booleans are
    tossed; text is a number from 0 to 10; a sparse tensor has a few elements.

    Args:
        structure: A nest of tensor specs.
        seed: An integer begins a stream, as in `tf.random.uniform`: successive calls,
            and successive runs of a traced function, give new tensors, and the whole
            sequence comes again in each run of the program and after
            `tf.random.set_seed`. A tensor of one or two integers, or a pair of
            integers, always gives the same tensors. What XLA compiles obeys seeds of
            the second kind only; `generator.make_seeds()[:, 0]` of a
            `tf.random.Generator` is one, and another in each run.
        outer_dims: Dimensions before those of the specs: sizes, tensors among them,
            or one tensor of rank 1.
        minimum: No number shall be below this one, whatever its spec allows.
        maximum: No number shall be above this one.

    Example:
        >>> spec = {"move": BoundedTensorSpec([2], "int32", 0, 3)}
        >>> sample_spec_nest(spec, seed=1, outer_dims=(5,))["move"].shape
        TensorShape([5, 2])
    """
    return _sample_nest(structure, seed, outer_dims, minimum, maximum)


def zero_spec_nest(specs: NestedSpec, outer_dims: Any = None) -> NestedArray:
    """Makes a tensor of zeros for every spec of a nest; bounds are not looked at.

    Args:
        specs: A nest of tensor specs.
        outer_dims: As for `sample_spec_nest`.

    Example:
        >>> zero_spec_nest([TensorSpec([2], "float32")], outer_dims=(3,))[0].shape
        TensorShape([3, 2])
    """
    return _zero_nest(specs, outer_dims)


def add_outer_dims_nest(
    specs: NestedSpec, outer_dims: Sequence[int | None]
) -> NestedSpec:
    """Puts `outer_dims` before the shape of every spec; bounds and names stay.

    Example:
        >>> add_outer_dims_nest([TensorSpec([3], "float32")], (None, 2))
        [TensorSpec(shape=(None, 2, 3), dtype=tf.float32, name=None)]
    """
    return _add_outer_dims(specs, outer_dims)


def add_outer_dim(specs: NestedSpec, dim: int | None = None) -> NestedSpec:
    """Puts one dimension before the shape of every spec; of any size, unless given.

    Example:
        >>> add_outer_dim(TensorSpec([3], "float32"))
        TensorSpec(shape=(None, 3), dtype=tf.float32, name=None)
    """
    return add_outer_dims_nest(specs, (dim,))


def remove_outer_dims_nest(tensor_specs: NestedSpec, num_outer_dims: int) -> NestedSpec:
    """Takes the first `num_outer_dims` sizes off the shape of every spec.

    Bounds that differ along a removed dimension widen to hold all of them.

    Example:
        >>> remove_outer_dims_nest(TensorSpec([None, 3], "float32"), 1)
        TensorSpec(shape=(3,), dtype=tf.float32, name=None)
    """
    return _remove_outer_dims(tensor_specs, num_outer_dims)


def with_dtype(specs: NestedSpec, dtype: Any) -> NestedSpec:
    """Makes tensor specs that differ in their dtype only.

    Bounds beyond what the dtype can hold become its limits, those of integers lose
    their fractions, and specs of anything but numbers have none.

    Example:
        >>> with_dtype(BoundedTensorSpec([], "float32", -1.5, 1.5, "pedal"), "int8")
        ... # doctest: +NORMALIZE_WHITESPACE
        BoundedTensorSpec(shape=(), dtype=tf.int8, name='pedal',
            minimum=array(-1, dtype=int8), maximum=array(1, dtype=int8))
    """
    return _change_dtype(specs, tf.as_dtype(dtype))


def _as_tensor_spec(spec: Any, path: str) -> Any:
    if isinstance(spec, tf.TypeSpec):
        return spec
    if not isinstance(spec, ArraySpec):
        raise misfit(
            f"No known conversion from {spec_text(spec, path)} to a TensorSpec: it is "
            f"of type {type(spec).__name__}, and specs are expected.",
            path,
        )
    dtype = _as_tensor_dtype(spec, path)
    if isinstance(spec, BoundedArraySpec):
        return BoundedTensorSpec(
            spec.shape, dtype, spec.minimum, spec.maximum, spec.name
        )
    return TensorSpec(spec.shape, dtype, spec.name)


def _as_tensor_dtype(spec: ArraySpec, path: str) -> Any:
    try:
        # Objects may be anything, whereas TensorFlow takes all of them for text.
        dtype = None if spec.dtype.hasobject else tf.as_dtype(spec.dtype)
    except TypeError:
        dtype = None
    if dtype is None:
        raise misfit(
            f"TensorFlow has no dtype for {spec.dtype}, so there is no tensor spec for "
            f"{spec_text(spec, path)}. Use a dtype that both have, such as float32, "
            "int64 or bytes.",
            path,
        )
    return dtype


def _as_array_spec(spec: Any, path: str) -> ArraySpec:
    if isinstance(spec, ArraySpec):
        return spec
    if not isinstance(spec, tf.TensorSpec):
        raise misfit(
            f"No known conversion from {spec_text(spec, path)} to an ArraySpec: it is "
            f"of type {type(spec).__name__}, and a TensorSpec is expected.",
            path,
        )
    shape = known_shape(spec, path, "An ArraySpec")
    try:
        dtype = spec.dtype.as_numpy_dtype
    except KeyError:
        raise misfit(
            f"NumPy has no dtype for {spec.dtype.name}, so there is no array spec for "
            f"{spec_text(spec, path)}.",
            path,
        ) from None
    if not isinstance(spec, BoundedTensorSpec) or not is_number(spec.dtype):
        return ArraySpec(shape, dtype, spec.name)
    try:
        return BoundedArraySpec(shape, dtype, spec.minimum, spec.maximum, spec.name)
    except (TypeError, ValueError) as error:
        # TensorFlow has not looked whether bounds make sense together.
        raise misfit(
            f"There is no array spec for {spec_text(spec, path)}: {error}", path
        ) from error


@as_written
def _zero_nest(specs: NestedSpec, outer_dims: Any) -> NestedArray:
    sizes = as_sizes(outer_dims)

    def zeros(spec: Any, path: str) -> Any:
        dense = _as_dense(spec, path)
        shape = known_shape(dense, path, "A tensor of zeros")
        return tf.zeros(joined(sizes, shape), dense.dtype)

    return mapped(zeros, specs)


@as_written
def _add_outer_dims(specs: NestedSpec, outer_dims: Any) -> NestedSpec:
    if not isinstance(outer_dims, list | tuple):
        raise ValueError(
            f"outer_dims must be a tuple or list of dimensions, not {outer_dims!r:.80}."
        )
    sizes = [
        tf.get_static_value(size) if tf.is_tensor(size) else size for size in outer_dims
    ]
    as_outer_dims([size for size in sizes if size is not None])
    dims = tf.TensorShape(sizes)
    return mapped(lambda spec, path: longer(_as_known_kind(spec, path), dims), specs)


@as_written
def _remove_outer_dims(specs: NestedSpec, count: Any) -> NestedSpec:
    if not isinstance(count, numbers.Integral):
        raise TypeError(f"num_outer_dims is a number of dimensions, not {count!r:.80}.")

    def without(spec: Any, path: str) -> Any:
        return shorter(_as_known_kind(spec, path), path, int(count))

    return mapped(without, specs)


@as_written
def _change_dtype(specs: NestedSpec, dtype: Any) -> NestedSpec:
    def changed(spec: Any, path: str) -> Any:
        return with_other_dtype(_as_known_kind(spec, path), path, dtype)

    return mapped(changed, specs)


@as_written
def _sample_bounded(spec: Any, seed: Any, outer_dims: Any) -> Any:
    if not isinstance(spec, BoundedTensorSpec | BoundedArraySpec):
        raise TypeError(
            f"sample_bounded_spec() needs a BoundedTensorSpec, not {spec_text(spec)}; "
            "sample_spec_nest() samples every spec."
        )
    return Sampler(seed, outer_dims)(_as_tensor_spec(spec, ""), "")


@as_written
def _sample_nest(
    structure: NestedSpec, seed: Any, outer_dims: Any, minimum: Any, maximum: Any
) -> NestedArray:
    sample = Sampler(seed, outer_dims, minimum, maximum)

    def sampled(spec: Any, path: str) -> Any:
        return sample(_as_known_kind(spec, path, TypeError), path)

    return mapped(sampled, structure)


def _as_dense(
    spec: Any, path: str, error: type[Exception] = NotImplementedError
) -> Any:
    """Returns the spec of a dense tensor; `error` is for TensorFlow's other kinds."""
    if isinstance(spec, ArraySpec | tf.TensorSpec):
        return _as_tensor_spec(spec, path)
    if isinstance(spec, tf.TypeSpec):
        raise error(f"Spec type not supported{place_text(path)}: {spec_text(spec)}.")
    raise TypeError(
        f"Spec type not supported{place_text(path)}: {spec_text(spec)}, which is of "
        f"type {type(spec).__name__}. Tensor specs are expected."
    )


def _as_known_kind(
    spec: Any, path: str, error: type[Exception] = NotImplementedError
) -> Any:
    """Returns the spec of a tensor, dense or sparse; `error` is for other kinds."""
    if isinstance(spec, tf.SparseTensorSpec):
        return spec
    return _as_dense(spec, path, error)
