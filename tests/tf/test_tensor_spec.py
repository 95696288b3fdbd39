"""Specs of tensors: to and from specs of arrays, and tensors that fit them."""

from __future__ import annotations

import collections
import functools
import inspect
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from tensorflow.python.framework import tensor_spec as theirs

from envkit import nest
from envkit.errors import SpecError
from envkit.specs import ArraySpec, BoundedArraySpec, array_spec
from envkit.tf import tensor_spec
from envkit.tf.tensor_spec import (
    BoundedTensorSpec,
    TensorSpec,
    add_outer_dim,
    add_outer_dims_nest,
    from_spec,
    remove_outer_dims_nest,
    sample_bounded_spec,
    sample_spec_nest,
    to_array_spec,
    to_nest_array_spec,
    with_dtype,
    zero_spec_nest,
)
from tests import strategies

# None and an integer begin streams; the last always gives the same.
SEEDS = [None, 5, (5, 1)]
NUMBERS = (*strategies.INTEGERS, *strategies.FLOATS, "bfloat16")

Camera = collections.namedtuple("Camera", ["right", "left"])


def bounds_of(spec: Any) -> tuple[Any, Any]:
    return spec.minimum.tolist(), spec.maximum.tolist()


def parts(spec: Any) -> Any:
    """Returns all that a spec says: when compared, array specs ignore their names."""
    name = getattr(spec, "name", None)
    kind = (type(spec).__name__, str(tf.TensorShape(spec.shape)), spec.dtype, name)
    if not tensor_spec.is_bounded(spec):
        return kind
    return (*kind, spec.minimum.shape, spec.maximum.shape, *bounds_of(spec))


def draw(spec: Any, count: int, seed: Any = 1) -> Any:
    return sample_bounded_spec(spec, seed, (count,)).numpy()


def compiled(
    spec: Any, seed: Any = None, outer_dims: Any = (), jit: bool = True
) -> Any:
    return tf.function(
        lambda: sample_spec_nest(spec, seed, outer_dims), jit_compile=jit
    )()


def graph_of(function: Any, *arguments: Any) -> Any:
    return tf.function(function).get_concrete_function(*arguments).graph


def random_operations(function: Any, *arguments: Any) -> list[str]:
    operations = graph_of(function, *arguments).get_operations()
    return [
        operation.type for operation in operations if "RandomUniform" in operation.type
    ]


def test_the_classes_are_tensorflows_own():
    assert TensorSpec is tf.TensorSpec
    assert BoundedTensorSpec is theirs.BoundedTensorSpec


SPARSE, RAGGED = tf.SparseTensorSpec([2]), tf.RaggedTensorSpec([2, None])
INT4 = TensorSpec([4], tf.int64)
NO_ROWS = np.zeros([0, 2])
Bounded = BoundedTensorSpec

# A function, what it is called with, and the spec that it makes.
SPECS_MADE = [
    (from_spec, [ArraySpec((2,), np.uint8, "left")], TensorSpec([2], "uint8", "left")),
    # Bounds stay as they were given.
    (from_spec, [BoundedArraySpec((2, 3), np.int16, 0, [1, 2, 3], "a")],
     Bounded([2, 3], tf.int16, 0, [1, 2, 3], "a")),
    # Text may be of any width, and the byte order is left behind.
    *((from_spec, [ArraySpec((2,), dtype)], TensorSpec([2], tf.string))
      for dtype in (np.bytes_, np.str_, "S5", "<U3")),
    (from_spec, [BoundedArraySpec((), ">i8", -3, 2**40)],
     Bounded([], tf.int64, -3, 2**40)),
    (to_array_spec, [ArraySpec((), np.longdouble)], ArraySpec((), np.longdouble)),
    (to_nest_array_spec, [TensorSpec([2], "int8", "a")], ArraySpec((2,), "int8", "a")),
    # Only numbers have bounds.
    *((to_array_spec, [Bounded([2], dtype, 0, 1, "a")], ArraySpec((2,), dtype, "a"))
      for dtype in ("bool", "complex64")),
    (add_outer_dims_nest, [TensorSpec([3], tf.int8, "a"), (None, 2)],
     TensorSpec([None, 2, 3], tf.int8, "a")),
    (add_outer_dims_nest, [SPARSE, [None, 2]], tf.SparseTensorSpec([None, 2, 2])),
    (add_outer_dims_nest, [TensorSpec([4]), (tf.constant(3), 2)],
     TensorSpec([3, 2, 4])),
    (add_outer_dim, [Bounded([2], "int8", 0, [1, 2], "a")],
     Bounded([None, 2], "int8", 0, [1, 2], "a")),
    (add_outer_dim, [TensorSpec([2]), 5], TensorSpec([5, 2])),
    (add_outer_dim, [TensorSpec(None), 5], TensorSpec(None)),
    (add_outer_dim, [BoundedArraySpec((3,), "i1", 0, 1), 2],
     Bounded([2, 3], "int8", 0, 1)),
    (remove_outer_dims_nest, [BoundedArraySpec((2, 3), "i1", 0, 1), 1],
     Bounded([3], "int8", 0, 1)),
    (remove_outer_dims_nest, [TensorSpec(None), 2], TensorSpec(None)),
    (remove_outer_dims_nest, [SPARSE, 1], tf.SparseTensorSpec([])),
    # Bounds widen to hold all rows; those of no rows become the dtype's limits.
    *((remove_outer_dims_nest, [Bounded(shape, "int8", 0, [[1, 9, 7], [8, 2, 5]]), 1],
       Bounded(shape and [3], "int8", 0, high))
      for shape, high in [([2, 3], [8, 9, 7]), ([None, 3], [8, 9, 7]), (None, 9)]),
    (remove_outer_dims_nest, [Bounded([0, 2], tf.uint8, NO_ROWS, NO_ROWS), 1],
     Bounded([2], tf.uint8, 0, 255)),
    (remove_outer_dims_nest, [Bounded([0, 2], tf.bool, NO_ROWS, NO_ROWS), 1],
     Bounded([2], tf.bool, False, True)),
    (remove_outer_dims_nest, [Bounded([2, 2], tf.bool, [[0, 1], [1, 1]], True), 1],
     Bounded([2], tf.bool, [False, True], True)),
    (with_dtype, [tf.SparseTensorSpec([2], "int32"), "int8"],
     tf.SparseTensorSpec([2], "int8")),
    # Bounds go as far as the dtype does, and large integers keep all digits.
    *((with_dtype, [Bounded([2], dtype, *old), wanted], Bounded([2], wanted, *new))
      for dtype, old, wanted, new in [
          ("float64", (-1.5, 1.5), "int32", (-1, 1)),
          ("float64", (-1e300, 1e300), "uint8", (0, 255)),
          ("float64", (-1e300, 1e300), "int64", (-(2**63), 2**63 - 1)),
          ("float64", (-np.inf, 7), "uint64", (0, 7)),
          ("float64", (-1e300, [1, 2]), "float16", (-65504, [1, 2])),
          ("float64", (0, 1), "float32", (0, 1)),
          ("int64", (2**53 + 1, 2**63 - 1), "uint64", (2**53 + 1, 2**63 - 1)),
      ]),
    # What has no order has no bounds as a number.
    *((with_dtype, [Bounded([2], dtype, bound, bound, "a"), "int8"],
       TensorSpec([2], "int8", "a"))
      for dtype, bound in [("string", "a"), ("complex64", 1j), ("qint8", 1)]),
]  # fmt: skip


@pytest.mark.parametrize(("function", "arguments", "expected"), SPECS_MADE)
def test_single_and_nested_specs_are_converted(function, arguments, expected):
    spec, *others = arguments

    alone = function(spec, *others)
    (in_a_nest,) = function({"a": [spec]}, *others)["a"]

    assert [parts(expected)] * 2 == [parts(alone), parts(in_a_nest)]


# A function, what it is called with, its error, and the whole message.
REFUSALS = [
    *((from_spec, ({"c": [ArraySpec((2,), dtype)]},), SpecError,
       f"TensorFlow has no dtype for {np.dtype(dtype)}, so there is no tensor spec for "
       f"ArraySpec(shape=(2,), dtype={np.dtype(dtype)}) at ['c'][0]. Use a dtype that "
       "both have, such as float32, int64 or bytes.")
      for dtype in ("longdouble", "datetime64[ns]", "object", "V3")),
    (from_spec, ({"camera": [np.zeros(1)]},), SpecError,
     "No known conversion from array([0.]) at ['camera'][0] to a TensorSpec: it must "
     "be a spec, got an object of type ndarray."),
    (from_spec, ("float32",), SpecError,
     "No known conversion from 'float32' to a TensorSpec: it must be a spec, got an "
     "object of type str."),
    *((to_array_spec, ({"a": TensorSpec(shape)},), SpecError,
       f"An ArraySpec needs all sizes, and TensorSpec(shape={tf.TensorShape(shape)}, "
       "dtype=float32) at ['a'] leaves some open.")
      for shape in ([None, 2], None)),
    (to_array_spec, ([SPARSE],), SpecError,
     "No known conversion from SparseTensorSpec(TensorShape([2]), tf.float32) at [0] "
     "to an ArraySpec: it must be a TensorSpec, got an object of type "
     "SparseTensorSpec."),
    (to_array_spec, ([TensorSpec([2], tf.resource)],), SpecError,
     "NumPy has no dtype for resource, so there is no array spec for "
     "TensorSpec(shape=(2,), dtype=resource) at [0]."),
    (to_array_spec, ([Bounded([2], tf.int32, 5, 2)],), SpecError,
     "There is no array spec for BoundedTensorSpec(shape=(2,), dtype=int32) at [0]: "
     "BoundedArraySpec min has values greater than max: minimum 5 is above maximum 2."),
    (sample_bounded_spec, (TensorSpec([2], tf.int32),), TypeError,
     "The spec of sample_bounded_spec() must be a BoundedTensorSpec, got "
     "TensorSpec(shape=(2,), dtype=int32); sample_spec_nest() samples every spec."),
    *((sample_spec_nest, ({"a": Bounded([2], tf.float32, low, high)},), SpecError,
       "BoundedTensorSpec(shape=(2,), dtype=float32) at ['a'] has no values: its "
       f"minimum is {low:.1f}, its maximum {high:.1f}.")
      for low, high in [(5, 2), (0, np.nan)]),
    (sample_bounded_spec, (Bounded([2], tf.int32, 0, np.ones([3, 2])),), SpecError,
     "BoundedTensorSpec(shape=(2,), dtype=int32) has bounds of shapes () and (3, 2), "
     "which do not broadcast to its own."),
    (sample_spec_nest, ([TensorSpec([None], tf.int32)],), SpecError,
     "A sample needs all sizes, and TensorSpec(shape=(None,), dtype=int32) at [0] "
     "leaves some open."),
    (sample_spec_nest, ({"a": Bounded([2], "int32", 0, [1, 5])}, None, (), 1.5, 8),
     SpecError,
     "BoundedTensorSpec(shape=(2,), dtype=int32) at ['a'] has no values left: they are "
     "between 0 and [1, 5], and must be between 2 and 8."),
    (sample_spec_nest, ((), None, (), "1"), TypeError,
     "minimum must be a number, got '1'."),
    *((sample_spec_nest, ((), None, (), 1, bound), TypeError,
       f"maximum must be a number, got {bound!r}.")
      for bound in ("1", [1], np.nan)),
    (sample_spec_nest, ({"a": TensorSpec([], tf.complex64)},), TypeError,
     "Cannot sample TensorSpec(shape=(), dtype=complex64) at ['a']: no random value is "
     "defined for complex64."),
    (sample_spec_nest, ({"a": RAGGED},), TypeError,
     "Spec type not supported at ['a']: RaggedTensorSpec(TensorShape([2, None]), "
     "tf.float32, 1, tf.int64)."),
    (sample_spec_nest, ({"camera": [tf.int32]},), TypeError,
     "Spec type not supported at ['camera'][0]: tf.int32, which must be a tensor spec, "
     "got an object of type DType."),
    *((sample_spec_nest, (INT4, seed), TypeError,
       f"seed must be an integer or a pair of integers, got {seed!r:.80}.")
      for seed in [1.5, "seed", (1, 2.5), object(), tf.constant(1.0)]),
    (sample_spec_nest, (INT4, [1, 2, 3]), ValueError,
     "seed must be one integer or a pair of them, got shape (3,)."),
    *((zero_spec_nest, ({"camera": [spec]},), NotImplementedError,
       f"Spec type not supported at ['camera'][0]: {spec!r:.80}.")
      for spec in (SPARSE, RAGGED)),
    (zero_spec_nest, ([TensorSpec(None, tf.int32)],), SpecError,
     "A tensor of zeros needs all sizes, and TensorSpec(shape=<unknown>, dtype=int32) "
     "at [0] leaves some open."),
    *((zero_spec_nest, (INT4, sizes), TypeError,
       f"outer_dims must be a sequence of sizes, got a tensor of shape {text}.")
      for sizes, text in [(tf.constant(3), "(), dtype int32"),
                          (tf.constant([2.0]), "(1,), dtype float32")]),
    *((add_outer_dims_nest, ((), sizes), ValueError,
       f"outer_dims must be a tuple or list of dimensions, got {sizes}.")
      for sizes in (2, {2})),
    *((remove_outer_dims_nest, ({"a": [TensorSpec(shape)]}, count), SpecError,
       f"Cannot remove {count} outer dimensions from TensorSpec(shape="
       f"{tf.TensorShape(shape)}, dtype=float32) at ['a'][0]{rank}.")
      for shape, count, rank in [([2], 2, ", which has 1"), ([2], -1, ", which has 1"),
                                 (None, -1, "")]),
    (remove_outer_dims_nest, ((), (2,)), TypeError,
     "num_outer_dims must be an integer, got (2,)."),
    (with_dtype, ({"a": Bounded([2], tf.int32, [-9, -9], [-1, 1])}, tf.uint8),
     SpecError,
     "BoundedTensorSpec(shape=(2,), dtype=int32) at ['a'] has no values in common with "
     "uint8: they are between -9 and [-1, 1]."),
]  # fmt: skip


@pytest.mark.parametrize(
    ("function", "arguments", "error", "expected"),
    REFUSALS,
    ids=[f"{row[0].__name__}: {row[3][:30]}" for row in REFUSALS],
)
def test_errors_say_what_must_be(function, arguments, error, expected, message_of):
    assert expected == message_of(error, lambda: function(*arguments))


@pytest.mark.parametrize(
    ("outer_dims", "error"),
    [(3, TypeError), (tf.constant([-1]), ValueError), ([2.5], ValueError)],
)
def test_outer_dims_are_checked_as_for_array_specs(outer_dims, error, message_of):
    dims = outer_dims.numpy().tolist() if tf.is_tensor(outer_dims) else outer_dims
    expected = message_of(
        error, lambda: array_spec.add_outer_dims_nest(ArraySpec((), np.int8), dims)
    )

    for call in (zero_spec_nest, sample_spec_nest):
        assert expected == message_of(
            error, functools.partial(call, INT4, outer_dims=outer_dims)
        )


@pytest.mark.parametrize("outer_dims", [[-1], [None, "2"]])
def test_added_dimensions_are_sizes(outer_dims):
    with pytest.raises(ValueError, match="outer_dims"):
        add_outer_dims_nest((), outer_dims)


def test_the_signatures_match_tf_agents():
    names = {
        name: list(inspect.signature(getattr(tensor_spec, name)).parameters)
        for name in tensor_spec.__all__
        if name.islower()
    }
    assert {
        "add_outer_dim": ["specs", "dim"],
        "add_outer_dims_nest": ["specs", "outer_dims"],
        "from_spec": ["spec"],
        "is_bounded": ["spec"],
        "is_continuous": ["spec"],
        "is_discrete": ["spec"],
        "remove_outer_dims_nest": ["tensor_specs", "num_outer_dims"],
        "sample_bounded_spec": ["spec", "seed", "outer_dims"],
        "sample_spec_nest": ["structure", "seed", "outer_dims", "minimum", "maximum"],
        "to_array_spec": ["tensor_spec"],
        "to_nest_array_spec": ["nest_array_spec"],
        "with_dtype": ["specs", "dtype"],
        "zero_spec_nest": ["specs", "outer_dims"],
    } == names


@pytest.mark.parametrize(
    "spec",
    [
        TensorSpec([None], tf.float32, "a"),
        TensorSpec(None, tf.float32),
        BoundedTensorSpec([2], tf.int32, 0, 1),
        tf.SparseTensorSpec([2]),
        tf.RaggedTensorSpec([None, None]),
        tf.data.DatasetSpec(tf.TensorSpec([])),
    ],
)
def test_tensorflow_specs_are_left_unchanged(spec):
    assert spec is from_spec([spec])[0]


def test_a_nest_keeps_its_containers_and_the_order_of_its_dictionaries():
    leaf = ArraySpec((), np.int32)
    spec = {"b": Camera(leaf, [leaf]), "a": (leaf, {}), "c": ()}

    tensors = from_spec(spec)

    assert ["b", "a", "c"] == list(tensors)
    nest.assert_same_structure(spec, tensors)


def test_an_error_knows_its_place():
    with pytest.raises(SpecError) as caught:
        from_spec({"a": (None,)})
    assert "['a'][0]" == caught.value.path


@given(strategies.spec_nests(strategies.specs("biuf")))
def test_array_specs_survive_the_round_trip(spec):
    back = to_array_spec(from_spec(spec))
    assert list(map(parts, nest.flatten(spec))) == list(map(parts, nest.flatten(back)))
    nest.assert_same_structure(spec, back)


@given(strategies.spec_nests(strategies.specs("biuf")))
def test_tensor_specs_survive_the_round_trip(spec):
    tensors = from_spec(spec)

    back = from_spec(to_array_spec(tensors))

    assert list(map(parts, nest.flatten(tensors))) == list(
        map(parts, nest.flatten(back))
    )


@given(strategies.specs("US"))
def test_text_becomes_numpys_text_in_the_round_trip(spec):
    back = to_array_spec(from_spec(spec))

    text = tf.fill(spec.shape, "text").numpy()
    assert ArraySpec(spec.shape, object, spec.name) == back
    # Without dimensions NumPy has no array for it.
    assert not spec.shape or back.check_array(text)


@given(strategies.specs())
def test_predicates_agree_for_array_and_tensor_specs(spec):
    for name in ("is_bounded", "is_discrete", "is_continuous"):
        ask = getattr(tensor_spec, name)
        expected = getattr(array_spec, name)(spec)
        assert expected is ask(spec)
        assert expected is ask(from_spec(spec))


def test_every_kind_of_tensor_is_discrete_or_continuous():
    assert tensor_spec.is_discrete(tf.SparseTensorSpec([2], tf.int8))
    assert tensor_spec.is_continuous(tf.RaggedTensorSpec([2, None], tf.float16))
    assert tensor_spec.is_continuous(TensorSpec([], tf.bfloat16))


@given(strategies.bounded_specs(), strategies.outer_dims(), st.sampled_from(SEEDS))
def test_samples_lie_within_the_bounds(spec, outer_dims, seed):
    sample = sample_bounded_spec(from_spec(spec), seed, outer_dims).numpy()

    assert (*outer_dims, *spec.shape) == sample.shape
    assert spec.dtype == sample.dtype
    # Because TensorFlow flushes subnormal numbers to zero, a bound that is one may be
    # missed by as much.
    slack = np.finfo(spec.dtype).tiny if spec.dtype.kind == "f" else 0
    assert (sample >= spec.minimum - slack).all()
    assert (sample <= spec.maximum + slack).all()


@given(
    st.sampled_from(strategies.INTEGERS),
    st.integers(0, 3),
    st.booleans(),
    st.sampled_from(SEEDS),
)
def test_samples_reach_every_value_of_a_small_range(dtype, width, at_end, seed):
    info = np.iinfo(dtype)
    low = info.max - width if at_end else info.min
    spec = BoundedTensorSpec([], dtype, low, low + width)

    sample = draw(spec, 200, seed)

    assert list(range(low, low + width + 1)) == np.unique(sample).tolist()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_full_uint8_range_yields_all_values(seed):
    assert 256 == len(
        np.unique(draw(BoundedTensorSpec([], "uint8", 0, 255), 9000, seed))
    )


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("dtype", ["int32", "int64", "uint32", "uint64"])
def test_a_wide_range_is_covered_evenly(dtype, seed):
    """Three quarters of it, where remainders would prefer the first."""
    info = np.iinfo(dtype)
    quarter = (int(info.max) - int(info.min) + 1) // 4
    low = int(info.min)
    spec = BoundedTensorSpec([], dtype, low, low + 3 * quarter - 1)

    sample = draw(spec, 6000, seed)

    places = [int(value - low) // quarter for value in sample.astype(object)]
    assert {0, 1, 2} == set(places)
    assert all(1750 < places.count(part) < 2250 for part in range(3))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("dtype", [*strategies.INTEGERS, *strategies.FLOATS])
def test_the_whole_range_of_a_dtype_is_covered_evenly(dtype, seed):
    spec = BoundedTensorSpec.from_spec(TensorSpec([], dtype))

    sample = draw(spec, 4000, seed)

    middle = int(spec.maximum) / 2 if spec.minimum == 0 else 0
    assert np.isfinite(sample).all()
    assert 1800 < np.count_nonzero(sample > middle) < 2200
    assert len(np.unique(sample)) > 200


@pytest.mark.parametrize("seed", SEEDS)
def test_a_single_number_of_the_whole_range_can_be_drawn(seed):
    sample = sample_spec_nest({dtype: TensorSpec([], dtype) for dtype in NUMBERS}, seed)

    for dtype, number in sample.items():
        assert (dtype, []) == (number.dtype.name, number.shape.as_list())


@pytest.mark.parametrize("seed", SEEDS)
def test_each_element_has_its_own_bounds(seed):
    whole = 2**63
    spec = BoundedTensorSpec(
        [5], "int64", [-whole, 0, 7, -whole, 3], [whole - 1, 3 * 2**61, 7, -whole, 4]
    )

    sample = draw(spec, 2000, seed)

    assert [2000, 2000, 1, 1, 2] == [len(np.unique(column)) for column in sample.T]
    assert 850 < np.count_nonzero(sample[:, 0] < 0) < 1150
    assert 850 < np.count_nonzero(sample[:, 1] < 3 * 2**60) < 1150
    assert 850 < np.count_nonzero(sample[:, 4] == 3) < 1150


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_a_range_of_one_number_yields_that_number(dtype, seed):
    spec = BoundedTensorSpec([], dtype, 0.1, 0.1)
    assert [spec.minimum] == np.unique(draw(spec, 50, seed)).tolist()


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_an_infinite_bound_stands_for_the_largest_number(dtype):
    sample = draw(BoundedTensorSpec([], dtype, -np.inf, np.inf), 1000)
    assert np.isfinite(sample).all()
    assert np.abs(sample).max() > np.finfo(dtype).max * 0.9


def test_booleans_are_drawn_within_their_bounds():
    free, bounded = sample_spec_nest(
        [
            TensorSpec([400], tf.bool),
            BoundedTensorSpec([50, 2], tf.bool, [False, True], True),
        ],
        1,
    )

    assert 150 < np.count_nonzero(free) < 250
    assert {False, True} == set(bounded.numpy()[:, 0].tolist())
    assert {True} == set(bounded.numpy()[:, 1].tolist())


def test_text_samples_are_small_numbers():
    sample = sample_spec_nest(TensorSpec([400], tf.string), 1).numpy()
    assert {str(number).encode() for number in range(11)} == set(sample.tolist())


def test_array_specs_are_sampled_as_tensors():
    bounded = BoundedArraySpec((2,), np.int32, 5, 6)
    assert [2] == sample_bounded_spec(bounded).shape.as_list()
    sample = sample_spec_nest({"b": bounded, "a": ArraySpec((), "f8")})
    assert [("b", tf.int32), ("a", tf.float64)] == [
        (key, leaf.dtype) for key, leaf in sample.items()
    ]


BOUNDS = {
    "int32": ([0, 1, 2, 3], [4, 5, 6, 7]),
    "int64": ([-(2**63), 1, 2, 3], [4, 5, 6, 2**63 - 1]),
    "uint8": ([0, 1, 2, 3], [4, 5, 6, 255]),
    "float32": ([0, 1, 2, 3], [4, 5, 6, 7]),
    "float64": ([0, 1, 2, 3], [4, 5, 6, 7]),
}


@pytest.mark.parametrize("seed", SEEDS)
def test_one_operation_draws_all_elements(seed):
    specs = [BoundedTensorSpec([4], dtype, *BOUNDS[dtype]) for dtype in BOUNDS]

    drawn = random_operations(lambda: sample_spec_nest(specs, seed, (3,)))

    assert len(specs) == len(drawn)


@functools.cache
def sampled_everything() -> tuple[Any, Any]:
    """Samples each dtype twice from one pair: eagerly, and compiled by XLA."""
    spec = {
        name: {
            "all": TensorSpec([40], name),
            "some": BoundedTensorSpec([2], name, [0, 3], [1, 100]),
        }
        for name in NUMBERS
    }
    spec["bool"] = {"all": TensorSpec([40], tf.bool)}
    return sample_spec_nest(spec, (8, 0)), compiled(spec, (8, 0))


@pytest.mark.parametrize("dtype", [*NUMBERS, "bool"])
def test_the_same_pair_gives_the_same_samples_when_compiled(dtype):
    eager, in_xla = sampled_everything()

    for key, expected in eager[dtype].items():
        # Of floating numbers the compiler may round the last digit in its own way.
        np.testing.assert_allclose(
            expected.numpy().astype(np.float64),
            in_xla[dtype][key].numpy().astype(np.float64),
            rtol=1e-5 if "float" in dtype else 0,
        )


@pytest.mark.parametrize("seed", [None, 5])
def test_streams_can_be_compiled_too(seed):
    spec = {
        "a": BoundedTensorSpec([2], "int64", -(2**63), [5, 2**63 - 1]),
        "b": BoundedTensorSpec([], "float32", 3, 4),
    }

    sample = compiled(spec, seed, outer_dims=(30,))

    assert (sample["a"].numpy()[:, 0] <= 5).all()
    assert ((sample["b"].numpy() >= 3) & (sample["b"].numpy() <= 4)).all()


STREAMED = {
    "tossed": TensorSpec([20], tf.bool),
    "few": BoundedTensorSpec([20], tf.int32, 0, 999),
    "rows": BoundedTensorSpec([20], tf.int64, list(range(20)), 999),
    "all": TensorSpec([20], tf.int64),
    "share": BoundedTensorSpec([20], tf.float32, 0, 1),
    "text": TensorSpec([20], tf.string),
}


def texts(sample: Any) -> list[str]:
    """Writes each leaf, so that samples can be compared and counted."""
    return [repr(leaf.numpy().tolist()) for leaf in nest.flatten(sample)]


def streams(call: Any, count: int = 3) -> list[list[str]]:
    """Returns what each leaf is in successive calls."""
    calls = [texts(call()) for _ in range(count)]
    return [list(leaf) for leaf in zip(*calls, strict=True)]


def eager(seed: Any, spec: Any = STREAMED) -> Any:
    return lambda: sample_spec_nest(spec, seed)


def traced(seed: Any, spec: Any = STREAMED) -> Any:
    return tf.function(eager(seed, spec))


@pytest.mark.parametrize("way", [eager, traced])
@pytest.mark.parametrize("seed", [None, 5, np.uint8(5)])
def test_an_integer_seed_starts_a_stream_of_samples(seed, way):
    assert [3] * 6 == [len(set(leaf)) for leaf in streams(way(seed))]


@pytest.mark.parametrize("way", [eager, traced])
@pytest.mark.parametrize("seed", [(5, 1), tf.constant(5), tf.constant([5, 1])])
def test_a_pair_or_a_tensor_always_gives_the_same_samples(seed, way):
    assert [1] * 6 == [len(set(leaf)) for leaf in streams(way(seed))]


@pytest.mark.parametrize("way", [eager, traced])
@pytest.mark.parametrize("seed", [None, 5])
def test_a_stream_restarts_after_set_seed(seed, way):
    begun = []
    for _ in range(2):
        tf.random.set_seed(4)
        begun.append(streams(way(seed)))
    assert begun[0] == begun[1]


def test_a_stream_depends_on_tensorflows_seed_and_its_own():
    begun = set()
    for first, second in ((4, 5), (4, 6), (3, 5)):
        tf.random.set_seed(first)
        begun.add(str(streams(eager(second))))
    assert 3 == len(begun)


def test_each_seed_gives_its_own_samples():
    spec = TensorSpec([4], tf.int64)
    streams = [5, 6, -1, 2**40, np.int64(7), 2**31]
    begun = {tuple(texts(traced(seed, spec)())) for seed in streams}
    states = [
        [(5, 1)],
        [(5, 2)],
        [[6, 1]],
        [(-1, 2**40)],
        [np.array([7, 1])],
        [tf.constant(8)],
        [tf.constant([5, 3], tf.int64)],
        [tf.constant([2**63], tf.uint64)[0]],
        # The same seed in whatever form.
        [tf.constant(9), np.array(9), tf.Variable(9), (9, 0), [9, 0]],
    ]
    drawn = [{tuple(texts(eager(seed, spec)())) for seed in forms} for forms in states]

    assert len(streams) == len(begun)
    assert [1] * len(states) == [len(samples) for samples in drawn]
    assert len(states) == len(set.union(*drawn))


@pytest.mark.parametrize("way", [eager, traced])
@pytest.mark.parametrize("seed", SEEDS)
def test_the_leaves_of_a_nest_are_independent(seed, way):
    sample = way(seed, [TensorSpec([4], tf.int64)] * 5)()
    assert 5 == len(set(texts(sample)))


def test_leaves_do_not_repeat_those_of_the_next_seed():
    spec = [TensorSpec([4], tf.int64)] * 3
    pairs = [(first, second) for first in range(3) for second in range(3)]

    of_pairs = [leaf for pair in pairs for leaf in texts(eager(pair, spec)())]
    of_streams = [leaf for seed in range(3) for leaf in texts(traced(seed, spec)())]

    assert (27, 9) == (len(set(of_pairs)), len(set(of_streams)))


def test_the_first_leaf_equals_the_sample_of_a_single_spec():
    spec = BoundedTensorSpec([9], tf.int32, 0, 99)

    alone = sample_bounded_spec(spec, (5, 1))

    assert alone.numpy().tolist() == (
        sample_spec_nest([spec], (5, 1))[0].numpy().tolist()
    )


def test_a_tensor_as_seed_gives_other_samples_in_each_run():
    spec = TensorSpec([4], tf.int64)
    generator = tf.random.Generator.from_seed(3)

    @tf.function
    def sample():
        return sample_spec_nest(spec, generator.make_seeds()[:, 0])

    assert 3 == len({tuple(sample().numpy()) for _ in range(3)})


@pytest.mark.parametrize(
    "outer_dims",
    [
        (2, 3),
        [2, 3],
        np.array([2, 3]),
        tf.TensorShape([2, 3]),
        tf.constant([2, 3]),
        tf.constant([2, 3], tf.int64),
        [tf.constant(2), 3],
        (tf.constant(2), tf.constant(3, tf.int64)),
    ],
)
def test_outer_dims_are_accepted_in_any_form(outer_dims):
    spec = TensorSpec([4], tf.int32)

    shapes = [
        function(spec, outer_dims=outer_dims).shape.as_list()
        for function in (sample_spec_nest, zero_spec_nest)
    ]

    assert [[2, 3, 4]] * 2 == shapes


@pytest.mark.parametrize("outer_dims", [None, (), [], tf.zeros([0], tf.int32)])
def test_outer_dims_may_be_empty(outer_dims):
    spec = BoundedTensorSpec([4], tf.int32, 0, 1)
    assert [4] == sample_bounded_spec(spec, 1, outer_dims).shape.as_list()


@pytest.mark.parametrize("seed", SEEDS)
def test_static_shapes_are_known_where_sizes_are(seed):
    """Full ranges, so that integers of 64 bits take their own way."""
    dtypes = ["int32", "int64", "float32", "bool", "string"]
    specs = [TensorSpec([4], dtype) for dtype in dtypes]
    found: list[Any] = []

    def sample(size: Any) -> None:
        for sizes in [(2, 3), [2, size], tf.stack([size, size]), tf.fill([size], 2)]:
            samples = sample_spec_nest(specs, seed, sizes)
            found.append({str(leaf.shape) for leaf in samples})

    graph_of(sample, tf.TensorSpec([], tf.int32))

    assert [
        {"(2, 3, 4)"},
        {"(2, None, 4)"},
        {"(None, None, 4)"},
        {"<unknown>"},
    ] == found


def test_sizes_known_only_at_run_time_are_used():
    spec = BoundedTensorSpec([2], "int64", -(2**63), [5, 2**63 - 1])

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int64)])
    def sample(outer_dims):
        return (
            sample_bounded_spec(spec, None, outer_dims),
            sample_bounded_spec(spec, 1, outer_dims),
            zero_spec_nest(spec, outer_dims),
        )

    for outer_dims in ([], [3], [3, 2]):
        results = sample(tf.constant(outer_dims, tf.int64))

        assert [[*outer_dims, 2]] * 3 == [result.shape.as_list() for result in results]


@given(strategies.spec_nests(max_depth=2), strategies.outer_dims())
def test_samples_have_the_structure_of_their_specs(spec, outer_dims):
    tensors = from_spec(spec)

    sample = sample_spec_nest(tensors, 1, outer_dims)

    for leaf, tensor in zip(nest.flatten(tensors), nest.flatten(sample), strict=True):
        assert leaf.dtype == tensor.dtype
        assert [*outer_dims, *leaf.shape] == tensor.shape.as_list()
    nest.assert_same_structure(spec, sample)


@pytest.mark.parametrize(
    ("spec", "minimum", "maximum", "expected"),
    [
        (BoundedTensorSpec([], "int32", 0, 9), 3, 5, [3, 4, 5]),
        (BoundedTensorSpec([], "int32", 0, 9), 2.5, 5.5, [3, 4, 5]),
        (BoundedTensorSpec([], "int32", 0, 2), -7, 70, [0, 1, 2]),
        (BoundedTensorSpec([], "int32", 0, 2), None, 1, [0, 1]),
        (BoundedTensorSpec([], "int32", 0, 2), 1, None, [1, 2]),
        (BoundedTensorSpec([], "uint8", 0, 255), -1e9, 1, [0, 1]),
        (BoundedTensorSpec([], "uint64", 0, 2**64 - 1), 2**64 - 2, 1e30,
         [2**64 - 2, 2**64 - 1]),
        (TensorSpec([], "int64"), -1, np.int8(1), [-1, 0, 1]),
        (TensorSpec([], "int8"), 126, np.inf, [126, 127]),
        (TensorSpec([], "float32"), 0.5, 0.5, [0.5]),
        (TensorSpec([], "bfloat16"), 0.5, np.float32(0.5), [0.5]),
        (TensorSpec([], "bool"), 7, 9, [False, True]),
    ],
)  # fmt: skip
def test_samples_can_be_restricted_further(spec, minimum, maximum, expected):
    sample = sample_spec_nest(spec, 3, (99,), minimum, maximum)
    assert expected == np.unique(sample.numpy()).tolist()


def test_a_restriction_holds_for_each_element():
    spec = BoundedTensorSpec([3], tf.float32, [0, 5, -5], [1, 9, 9])

    sample = sample_spec_nest(spec, 3, (99,), 0.5, 7).numpy()

    assert (sample >= [0.5, 5, 0.5]).all()
    assert (sample <= [1, 7, 7]).all()


@pytest.mark.parametrize("dtype", ["float32", "int8", "bool", "string"])
@pytest.mark.parametrize("shape", [[3, 4], [50], [2], [], [0, 3]])
def test_a_sparse_sample_has_a_few_elements_at_distinct_places(shape, dtype):
    spec = {"a": [tf.SparseTensorSpec(shape, dtype)]}

    (sparse,) = sample_spec_nest(spec, 1, (2,))["a"]

    room = int(np.prod([2, *shape]))
    ordered = tf.sparse.reorder(sparse)
    assert (spec["a"][0].dtype, [2, *shape]) == (sparse.dtype, sparse.shape.as_list())
    assert min(room, 7) == len(sparse.values)
    assert len(sparse.indices) == len(
        {tuple(index) for index in sparse.indices.numpy()}
    )
    assert ordered.indices.numpy().tolist() == sparse.indices.numpy().tolist()
    tf.sparse.to_dense(sparse)  # It refuses indices that are out of bounds.


def test_a_sparse_sample_can_use_every_place():
    spec = tf.SparseTensorSpec([3, 5], tf.float32)

    places = {
        tuple(index)
        for seed in range(30)
        for index in sample_spec_nest(spec, seed).indices.numpy()
    }

    assert 15 == len(places)


def test_the_numbers_of_a_sparse_sample_are_restricted():
    spec = tf.SparseTensorSpec([9], tf.int32)

    sparse = sample_spec_nest(spec, 1, minimum=3, maximum=4)

    assert set(sparse.values.numpy()) <= {3, 4}


def test_a_sparse_sample_needs_static_sizes(message_of):
    spec = [tf.SparseTensorSpec([9], tf.int32)]

    message = message_of(
        NotImplementedError,
        lambda: graph_of(
            lambda size: sample_spec_nest(spec, None, [size]),
            tf.TensorSpec([], tf.int32),
        ),
    )

    assert (
        "SparseTensorSpec(TensorShape([9]), tf.int32) at [0] can only be sampled with "
        "outer_dims that are known when the function is traced."
    ) in message


@given(strategies.spec_nests(max_depth=2), strategies.outer_dims())
def test_zeros_are_made_for_every_spec(spec, outer_dims):
    zeros = zero_spec_nest(from_spec(spec), outer_dims)

    for leaf, tensor in zip(nest.flatten(spec), nest.flatten(zeros), strict=True):
        assert tf.as_dtype(leaf.dtype) == tensor.dtype
        assert [*outer_dims, *leaf.shape] == tensor.shape.as_list()
        assert not np.any(np.asarray(tensor.numpy(), object))
    assert [()] == zero_spec_nest([()])


@given(strategies.spec_nests(max_depth=2), strategies.outer_dims())
def test_dimensions_that_are_added_can_be_removed(spec, outer_dims):
    tensors = from_spec(spec)

    longer = add_outer_dims_nest(tensors, outer_dims)
    back = remove_outer_dims_nest(longer, len(outer_dims))

    for leaf, long, short in zip(
        *map(nest.flatten, (tensors, longer, back)), strict=True
    ):
        assert [*outer_dims, *leaf.shape] == long.shape.as_list()
        assert parts(leaf) == parts(short)
        assert parts(leaf)[2:] == parts(long)[2:]


@pytest.mark.parametrize(
    ("dtype", "low", "high"),
    [(tf.string, "a", "b"), (tf.complex64, 0, 1j), (tf.qint8, 0, 1)],
)
def test_unordered_bounds_are_kept_if_they_fit(dtype, low, high):
    spec = BoundedTensorSpec([2, 3], dtype, low, high, "a")
    of_rows = BoundedTensorSpec([2, 3], dtype, [[low] * 3] * 2, high, "a")

    kept, dropped = remove_outer_dims_nest([spec, of_rows], 1)

    assert (spec.minimum, spec.maximum) == (kept.minimum, kept.maximum)
    assert TensorSpec([3], dtype, "a") == dropped
    assert type(dropped) is TensorSpec


@given(
    strategies.spec_nests(max_depth=2), st.sampled_from([*NUMBERS, "bool", "string"])
)
def test_only_the_dtype_changes(spec, dtype):
    # Not above one, so that there are values in common.
    restricted = nest.map_structure(_with_zero, spec)

    changed = with_dtype(restricted, dtype)

    numeric = dtype not in ("bool", "string")
    for leaf, other in zip(*map(nest.flatten, (restricted, changed)), strict=True):
        assert tf.as_dtype(dtype) == other.dtype
        assert (list(leaf.shape), leaf.name) == (other.shape.as_list(), other.name)
        assert (array_spec.is_bounded(leaf) and numeric) is tensor_spec.is_bounded(
            other
        )
        if tensor_spec.is_bounded(other):
            assert np.isfinite(other.minimum.astype(np.float64)).all()
            assert np.isfinite(other.maximum.astype(np.float64)).all()
            assert (other.minimum <= other.maximum).all()


def _with_zero(spec: Any) -> Any:
    if not array_spec.is_bounded(spec):
        return spec
    # Of its own dtype: older NumPy makes float64 of uint64 and an integer.
    zero = spec.dtype.type(0)
    return spec.replace(
        minimum=np.minimum(spec.minimum, zero), maximum=np.maximum(spec.maximum, zero)
    )


def test_specs_can_be_made_while_a_function_is_traced():
    @tf.function
    def zeros():
        spec = from_spec({"b": ArraySpec((2,), np.int32)})
        longer = add_outer_dim(with_dtype(spec, tf.int8), 3)
        back = from_spec(to_array_spec(longer))
        return zero_spec_nest(back, (tf.constant(1),))

    assert [1, 3, 2] == zeros()["b"].shape.as_list()
