"""Specs of tensors: to and from specs of arrays, and tensors that fit them."""

from __future__ import annotations

import collections
import functools
import inspect
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from tensorflow.python.framework import tensor_spec as theirs

import envkit
import envkit.tf
from envkit import nest
from envkit.errors import SpecError
from envkit.specs import ArraySpec, BoundedArraySpec, array_spec
from envkit.tf import tensor_spec
from envkit.tf.tensor_spec import BoundedTensorSpec, TensorSpec
from tests import strategies

# None and an integer begin streams; the last always gives the same.
SEEDS = [None, 5, (5, 1)]
NUMBERS = (*strategies.INTEGERS, *strategies.FLOATS, "bfloat16")

Camera = collections.namedtuple("Camera", ["right", "left"])


def bounds_of(spec: Any) -> tuple[Any, Any]:
    return spec.minimum.tolist(), spec.maximum.tolist()


def parts(spec: Any) -> Any:
    """Returns all that a spec says: when compared, array specs ignore their names."""
    kind = (type(spec).__name__, tuple(spec.shape), spec.dtype, spec.name)
    if not tensor_spec.is_bounded(spec):
        return kind
    return (*kind, spec.minimum.shape, spec.maximum.shape, *bounds_of(spec))


def draw(spec: Any, count: int, seed: Any = 1) -> Any:
    return tensor_spec.sample_bounded_spec(spec, seed, (count,)).numpy()


def compiled(
    spec: Any, seed: Any = None, outer_dims: Any = (), jit: bool = True
) -> Any:
    return tf.function(
        lambda: tensor_spec.sample_spec_nest(spec, seed, outer_dims), jit_compile=jit
    )()


def graph_of(function: Any, *arguments: Any) -> Any:
    return tf.function(function).get_concrete_function(*arguments).graph


def random_operations(function: Any, *arguments: Any) -> list[str]:
    operations = graph_of(function, *arguments).get_operations()
    return [
        operation.type for operation in operations if "RandomUniform" in operation.type
    ]


def test_the_classes_are_those_of_tensorflow():
    assert TensorSpec is tf.TensorSpec
    assert BoundedTensorSpec is theirs.BoundedTensorSpec


def test_the_module_is_found_by_its_package():
    assert tensor_spec is envkit.tf.tensor_spec


def test_the_signatures_are_those_that_tf_agents_users_know():
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


def test_an_array_spec_becomes_a_tensor_spec_of_the_same_name():
    spec = tensor_spec.from_spec(ArraySpec((2, 3), np.uint8, "camera"))

    assert TensorSpec([2, 3], tf.uint8, "camera") == spec


def test_a_bounded_array_spec_keeps_its_bounds_as_they_were_given():
    spec = tensor_spec.from_spec(BoundedArraySpec((2, 3), np.int16, 0, [1, 2, 3], "a"))

    assert BoundedTensorSpec is type(spec)
    assert ("a", 0, [1, 2, 3]) == (spec.name, *bounds_of(spec))


@pytest.mark.parametrize("dtype", [np.bytes_, np.str_, "S5", "<U3"])
def test_text_of_any_width_becomes_a_string(dtype):
    assert TensorSpec([2], tf.string) == tensor_spec.from_spec(ArraySpec((2,), dtype))


def test_the_byte_order_is_left_behind():
    spec = tensor_spec.from_spec(BoundedArraySpec((), ">i8", -3, 2**40))

    assert (tf.int64, -3, 2**40) == (spec.dtype, *bounds_of(spec))


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
def test_specs_of_tensorflow_stay_as_they_are(spec):
    assert spec is tensor_spec.from_spec([spec])[0]


def test_a_nest_keeps_its_containers_and_the_order_of_its_dictionaries():
    leaf = ArraySpec((), np.int32)
    spec = {"b": Camera(leaf, [leaf]), "a": (leaf, {}), "c": ()}

    tensors = tensor_spec.from_spec(spec)

    assert ["b", "a", "c"] == list(tensors)
    nest.assert_same_structure(spec, tensors)


@pytest.mark.parametrize("dtype", ["longdouble", "datetime64[ns]", "object", "V3"])
def test_a_dtype_that_tensorflow_does_not_have_is_refused(dtype, message_of):
    spec = ArraySpec((2,), dtype)

    message = message_of(
        SpecError, lambda: tensor_spec.from_spec({"camera": [spec], "a": ()})
    )

    assert (
        f"TensorFlow has no dtype for {spec.dtype}, so there is no tensor spec for "
        f"ArraySpec(shape=(2,), dtype={spec.dtype}) at ['camera'][0]. Use a dtype that "
        "both have, such as float32, int64 or bytes."
    ) == message


def test_what_is_no_spec_is_refused(message_of):
    message = message_of(
        ValueError, lambda: tensor_spec.from_spec({"camera": [np.zeros(1)]})
    )

    assert (
        "No known conversion from array([0.]) at ['camera'][0] to a TensorSpec: it is "
        "of type ndarray, and specs are expected."
    ) == message


def test_a_single_leaf_that_is_no_spec_is_refused_without_a_place(message_of):
    message = message_of(ValueError, lambda: tensor_spec.from_spec("float32"))

    assert (
        "No known conversion from 'float32' to a TensorSpec: it is of type str, and "
        "specs are expected."
    ) == message


def test_an_error_knows_its_place():
    with pytest.raises(SpecError) as caught:
        tensor_spec.from_spec({"a": (None,)})

    assert "['a'][0]" == caught.value.path


@given(strategies.spec_nests(strategies.specs("biuf")))
def test_array_specs_come_back_as_they_were(spec):
    back = tensor_spec.to_array_spec(tensor_spec.from_spec(spec))

    assert list(map(parts, nest.flatten(spec))) == list(map(parts, nest.flatten(back)))
    nest.assert_same_structure(spec, back)


@given(strategies.spec_nests(strategies.specs("biuf")))
def test_tensor_specs_come_back_as_they_were(spec):
    tensors = tensor_spec.from_spec(spec)

    back = tensor_spec.from_spec(tensor_spec.to_array_spec(tensors))

    assert list(map(parts, nest.flatten(tensors))) == list(
        map(parts, nest.flatten(back))
    )


@given(strategies.specs("US"))
def test_text_comes_back_as_what_numpy_makes_of_it(spec):
    back = tensor_spec.to_array_spec(tensor_spec.from_spec(spec))

    text = tf.fill(spec.shape, "text").numpy()
    assert ArraySpec(spec.shape, object, spec.name) == back
    # Without dimensions NumPy has no array for it.
    assert not spec.shape or back.check_array(text)


def test_array_specs_stay_as_they_are():
    spec = ArraySpec((), np.longdouble)

    assert spec is tensor_spec.to_array_spec([spec])[0]


def test_the_longer_name_does_the_same():
    spec = {"a": TensorSpec([2], tf.int32)}

    assert {"a": ArraySpec((2,), np.int32)} == tensor_spec.to_nest_array_spec(spec)


@pytest.mark.parametrize("dtype", ["bool", "complex64"])
def test_bounds_of_what_is_no_number_are_left_behind(dtype):
    spec = BoundedTensorSpec([2], dtype, 0, 1, "a")

    assert ("ArraySpec", (2,), np.dtype(dtype), "a") == parts(
        tensor_spec.to_array_spec(spec)
    )


@pytest.mark.parametrize("shape", [[None, 2], None])
def test_an_array_spec_needs_all_sizes(shape, message_of):
    spec = {"a": TensorSpec(shape, tf.int32)}

    message = message_of(SpecError, lambda: tensor_spec.to_array_spec(spec))

    assert (
        f"An ArraySpec needs all sizes, and TensorSpec(shape={tf.TensorShape(shape)}, "
        "dtype=int32) at ['a'] leaves some open."
    ) == message


def test_sparse_tensors_have_no_array_spec(message_of):
    spec = [tf.SparseTensorSpec([2])]

    message = message_of(SpecError, lambda: tensor_spec.to_array_spec(spec))

    assert (
        "No known conversion from SparseTensorSpec(TensorShape([2]), tf.float32) at [0]"
        " to an ArraySpec: it is of type SparseTensorSpec, and a TensorSpec is "
        "expected."
    ) == message


def test_a_dtype_that_numpy_does_not_have_is_refused(message_of):
    spec = [TensorSpec([2], tf.resource)]

    message = message_of(SpecError, lambda: tensor_spec.to_array_spec(spec))

    assert (
        "NumPy has no dtype for resource, so there is no array spec for "
        "TensorSpec(shape=(2,), dtype=resource) at [0]."
    ) == message


def test_bounds_that_make_no_sense_are_refused(message_of):
    spec = [BoundedTensorSpec([2], tf.int32, 5, 2)]

    message = message_of(SpecError, lambda: tensor_spec.to_array_spec(spec))

    assert (
        "There is no array spec for BoundedTensorSpec(shape=(2,), dtype=int32) at [0]: "
        "BoundedArraySpec min has values greater than max: minimum 5 is above maximum "
        "2."
    ) == message


@given(strategies.specs())
def test_what_a_spec_is_does_not_depend_on_its_kind(spec):
    for name in ("is_bounded", "is_discrete", "is_continuous"):
        ask = getattr(tensor_spec, name)
        expected = getattr(array_spec, name)(spec)

        assert expected is ask(spec)
        assert expected is ask(tensor_spec.from_spec(spec))


def test_sparse_tensors_have_a_dtype_too():
    assert tensor_spec.is_discrete(tf.SparseTensorSpec([2], tf.int8))
    assert tensor_spec.is_continuous(tf.RaggedTensorSpec([2, None], tf.float16))


def test_what_only_tensorflow_has_is_continuous():
    assert tensor_spec.is_continuous(TensorSpec([], tf.bfloat16))


@given(strategies.bounded_specs(), strategies.outer_dims(), st.sampled_from(SEEDS))
def test_samples_lie_within_the_bounds(spec, outer_dims, seed):
    sample = tensor_spec.sample_bounded_spec(
        tensor_spec.from_spec(spec), seed, outer_dims
    ).numpy()

    assert (*outer_dims, *spec.shape) == sample.shape
    assert spec.dtype == sample.dtype
    assert (sample >= spec.minimum).all()
    assert (sample <= spec.maximum).all()


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
def test_a_uint8_of_the_whole_range_takes_all_its_values(seed):
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
@pytest.mark.parametrize("dtype", NUMBERS)
def test_one_number_of_the_whole_range_is_drawn(dtype, seed):
    spec = TensorSpec([], dtype)

    sample = tensor_spec.sample_spec_nest(spec, seed)

    assert (spec.dtype, []) == (sample.dtype, sample.shape.as_list())


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
def test_a_range_of_one_number_has_that_number(dtype, seed):
    spec = BoundedTensorSpec([], dtype, 0.1, 0.1)

    assert [spec.minimum] == np.unique(draw(spec, 50, seed)).tolist()


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_an_infinite_bound_stands_for_the_largest_number(dtype):
    sample = draw(BoundedTensorSpec([], dtype, -np.inf, np.inf), 1000)

    assert np.isfinite(sample).all()
    assert np.abs(sample).max() > np.finfo(dtype).max * 0.9


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("dtype", "minimum", "maximum"),
    [
        ("int32", [0, 1, 2, 3], [4, 5, 6, 7]),
        ("int64", [-(2**63), 1, 2, 3], [4, 5, 6, 2**63 - 1]),
        ("uint8", [0, 1, 2, 3], [4, 5, 6, 255]),
        ("float32", [0, 1, 2, 3], [4, 5, 6, 7]),
        ("float64", [0, 1, 2, 3], [4, 5, 6, 7]),
    ],
)
def test_one_operation_draws_all_elements(dtype, minimum, maximum, seed):
    spec = BoundedTensorSpec([4], dtype, minimum, maximum)

    drawn = random_operations(
        lambda: tensor_spec.sample_bounded_spec(spec, seed, outer_dims=(3,))
    )

    assert 1 == len(drawn)


def test_an_array_spec_is_sampled_as_a_tensor():
    spec = BoundedArraySpec((2,), np.int32, 5, 6)

    assert [2] == tensor_spec.sample_bounded_spec(spec).shape.as_list()


def test_only_bounded_specs_are_sampled_between_bounds(message_of):
    message = message_of(
        TypeError, lambda: tensor_spec.sample_bounded_spec(TensorSpec([2], tf.int32))
    )

    assert (
        "sample_bounded_spec() needs a BoundedTensorSpec, not TensorSpec(shape=(2,), "
        "dtype=int32); sample_spec_nest() samples every spec."
    ) == message


@pytest.mark.parametrize(
    ("minimum", "maximum", "text"),
    [(5, 2, "5.0, its maximum 2.0"), (0, np.nan, "0.0, its maximum nan")],
)
def test_a_range_without_numbers_is_not_sampled(minimum, maximum, text, message_of):
    spec = {"a": BoundedTensorSpec([2], tf.float32, minimum, maximum)}

    message = message_of(SpecError, lambda: tensor_spec.sample_spec_nest(spec))

    assert (
        "BoundedTensorSpec(shape=(2,), dtype=float32) at ['a'] has no values: its "
        f"minimum is {text}."
    ) == message


def test_bounds_that_are_larger_than_the_shape_are_not_sampled(message_of):
    spec = BoundedTensorSpec([2], tf.int32, 0, np.ones([3, 2]))

    message = message_of(SpecError, lambda: tensor_spec.sample_bounded_spec(spec))

    assert (
        "BoundedTensorSpec(shape=(2,), dtype=int32) has bounds of shapes () and "
        "(3, 2), which do not broadcast to its own."
    ) == message


def test_a_sample_needs_all_sizes(message_of):
    spec = [TensorSpec([None], tf.int32)]

    message = message_of(SpecError, lambda: tensor_spec.sample_spec_nest(spec))

    assert (
        "A sample needs all sizes, and TensorSpec(shape=(None,), dtype=int32) at [0] "
        "leaves some open."
    ) == message


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
    return tensor_spec.sample_spec_nest(spec, (8, 0)), compiled(spec, (8, 0))


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
    return lambda: tensor_spec.sample_spec_nest(spec, seed)


def traced(seed: Any, spec: Any = STREAMED) -> Any:
    return tf.function(eager(seed, spec))


@pytest.mark.parametrize("way", [eager, traced])
@pytest.mark.parametrize("seed", [None, 5, np.uint8(5)])
def test_an_integer_begins_a_stream_of_new_samples(seed, way):
    assert [3] * 6 == [len(set(leaf)) for leaf in streams(way(seed))]


@pytest.mark.parametrize("way", [eager, traced])
@pytest.mark.parametrize("seed", [(5, 1), tf.constant(5), tf.constant([5, 1])])
def test_a_pair_or_a_tensor_always_gives_the_same_samples(seed, way):
    assert [1] * 6 == [len(set(leaf)) for leaf in streams(way(seed))]


@pytest.mark.parametrize("way", [eager, traced])
@pytest.mark.parametrize("seed", [None, 5])
def test_a_stream_begins_again_after_set_seed(seed, way):
    begun = []
    for _ in range(2):
        tf.random.set_seed(4)
        begun.append(streams(way(seed)))

    assert begun[0] == begun[1]


def test_the_seed_of_a_stream_is_that_of_tensorflow_and_its_own():
    begun = set()
    for first, second in ((4, 5), (4, 6), (3, 5)):
        tf.random.set_seed(first)
        begun.add(str(streams(eager(second))))

    assert 3 == len(begun)


@pytest.mark.slow
def test_a_stream_is_the_same_in_each_run_of_the_program():
    program = (
        "import tensorflow as tf; from envkit.tf import tensor_spec as t\n"
        "def draw(): return t.sample_spec_nest([tf.TensorSpec([], 'int64')] * 2, 7)\n"
        "for call in (draw, draw, f := tf.function(draw), f):\n"
        "    print([int(leaf) for leaf in call()])"
    )

    first, second = (
        subprocess.run(
            [sys.executable, "-c", program],
            cwd=Path(envkit.__file__).parent.parent,
            env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        ).stdout.splitlines()
        for _ in range(2)
    )

    # A traced function begins the stream anew.
    assert first == second == first[:2] * 2
    assert first[0] != first[1]


def test_other_seeds_begin_other_streams():
    seeds = [5, 6, -1, 2**40, np.int64(7), 2**31]
    graphs = [traced(seed) for seed in seeds]

    assert len(seeds) == len({tuple(texts(graph())) for graph in graphs})


def test_other_pairs_and_tensors_give_other_samples():
    spec = TensorSpec([4], tf.int64)
    seeds = [
        (5, 1),
        (5, 2),
        [6, 1],
        (-1, 2**40),
        np.array([7, 1]),
        tf.constant(8),
        tf.constant([5, 3], tf.int64),
        tf.constant([2**63], tf.uint64)[0],
    ]

    samples = {
        tuple(tensor_spec.sample_spec_nest(spec, seed).numpy()) for seed in seeds
    }

    assert len(seeds) == len(samples)


def test_a_number_is_the_same_seed_in_whatever_form():
    spec = TensorSpec([4], tf.int64)

    samples = {
        tuple(tensor_spec.sample_spec_nest(spec, seed).numpy())
        for seed in (tf.constant(9), np.array(9), tf.Variable(9), (9, 0), [9, 0])
    }

    assert 1 == len(samples)


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


def test_the_first_leaf_is_what_a_spec_alone_gives():
    spec = BoundedTensorSpec([9], tf.int32, 0, 99)

    alone = tensor_spec.sample_bounded_spec(spec, (5, 1))

    assert alone.numpy().tolist() == (
        tensor_spec.sample_spec_nest([spec], (5, 1))[0].numpy().tolist()
    )


def test_a_tensor_as_seed_gives_other_samples_in_each_run():
    spec = TensorSpec([4], tf.int64)
    generator = tf.random.Generator.from_seed(3)

    @tf.function
    def sample():
        return tensor_spec.sample_spec_nest(spec, generator.make_seeds()[:, 0])

    assert 3 == len({tuple(sample().numpy()) for _ in range(3)})


@pytest.mark.parametrize("seed", [1.5, "seed", (1, 2.5), object(), tf.constant(1.0)])
def test_a_seed_is_made_of_integers(seed, message_of):
    message = message_of(
        TypeError,
        lambda: tensor_spec.sample_spec_nest(TensorSpec([4], tf.int64), seed),
    )

    assert f"seed is an integer or a pair of integers, not {seed!r:.80}." == message


def test_a_seed_is_one_integer_or_two(message_of):
    message = message_of(
        ValueError,
        lambda: tensor_spec.sample_spec_nest(TensorSpec([4], tf.int64), [1, 2, 3]),
    )

    assert "seed has shape (3,); it is one integer or a pair of them." == message


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
def test_outer_dims_come_in_any_form(outer_dims):
    spec = TensorSpec([4], tf.int32)

    shapes = [
        function(spec, outer_dims=outer_dims).shape.as_list()
        for function in (tensor_spec.sample_spec_nest, tensor_spec.zero_spec_nest)
    ]

    assert [[2, 3, 4]] * 2 == shapes


@pytest.mark.parametrize("outer_dims", [None, (), [], tf.zeros([0], tf.int32)])
def test_there_may_be_no_outer_dims(outer_dims):
    spec = BoundedTensorSpec([4], tf.int32, 0, 1)

    assert [4] == tensor_spec.sample_bounded_spec(spec, 1, outer_dims).shape.as_list()


@pytest.mark.parametrize("dtype", ["int32", "int64", "float32", "bool", "string"])
@pytest.mark.parametrize("seed", SEEDS)
def test_static_shapes_are_known_where_sizes_are(dtype, seed):
    """Full ranges, so that integers of 64 bits take their own way."""
    spec = TensorSpec([4], dtype)
    one = tf.TensorSpec([], tf.int32)

    def shapes(size: Any) -> Any:
        sizes = [(2, 3), [2, size], tf.stack([size, size]), tf.fill([size], 2)]
        return [
            tensor_spec.sample_spec_nest(spec, seed, outer_dims).shape
            for outer_dims in sizes
        ]

    found: list[Any] = []
    graph_of(lambda size: found.extend(shapes(size)), one)
    assert [[2, 3, 4], [2, None, 4], [None, None, 4]] == [
        shape.as_list() for shape in found[:3]
    ]
    assert found[3].rank is None


def test_sizes_that_are_known_late_are_obeyed():
    spec = BoundedTensorSpec([2], "int64", -(2**63), [5, 2**63 - 1])

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int64)])
    def sample(outer_dims):
        return (
            tensor_spec.sample_bounded_spec(spec, None, outer_dims),
            tensor_spec.sample_bounded_spec(spec, 1, outer_dims),
            tensor_spec.zero_spec_nest(spec, outer_dims),
        )

    for outer_dims in ([], [3], [3, 2]):
        results = sample(tf.constant(outer_dims, tf.int64))

        assert [[*outer_dims, 2]] * 3 == [result.shape.as_list() for result in results]


@pytest.mark.parametrize(
    ("outer_dims", "error", "text"),
    [
        (
            3,
            TypeError,
            "outer_dims is a sequence of sizes, not 3: for one dimension write (3,).",
        ),
        (
            tf.constant(3),
            TypeError,
            "outer_dims is a sequence of sizes, not a tensor of shape (), dtype int32.",
        ),
        (
            tf.constant([2.0]),
            TypeError,
            "outer_dims is a sequence of sizes, not a tensor of shape (1,), dtype "
            "float32.",
        ),
        (
            tf.constant([-1]),
            ValueError,
            "outer_dims holds -1; a size is an integer of at least 0.",
        ),
        (
            [2.5],
            ValueError,
            "outer_dims holds 2.5; a size is an integer of at least 0.",
        ),
    ],
)
def test_outer_dims_are_sizes(outer_dims, error, text, message_of):
    message = message_of(
        error, lambda: tensor_spec.zero_spec_nest(TensorSpec([2]), outer_dims)
    )

    assert text == message


@given(strategies.spec_nests(max_depth=2), strategies.outer_dims())
def test_samples_have_the_structure_of_their_specs(spec, outer_dims):
    tensors = tensor_spec.from_spec(spec)

    sample = tensor_spec.sample_spec_nest(tensors, 1, outer_dims)

    for leaf, tensor in zip(nest.flatten(tensors), nest.flatten(sample), strict=True):
        assert leaf.dtype == tensor.dtype
        assert [*outer_dims, *leaf.shape] == tensor.shape.as_list()
    nest.assert_same_structure(spec, sample)


def test_samples_keep_the_order_of_dictionaries():
    spec = {"b": TensorSpec([], tf.int32), "a": TensorSpec([], tf.int32)}

    assert ["b", "a"] == list(tensor_spec.sample_spec_nest(spec))


def test_array_specs_are_sampled_as_tensors():
    sample = tensor_spec.sample_spec_nest(ArraySpec((2,), np.float64), outer_dims=[3])

    assert (tf.float64, [3, 2]) == (sample.dtype, sample.shape.as_list())


def test_booleans_are_tossed():
    sample = tensor_spec.sample_spec_nest(TensorSpec([400], tf.bool), 1).numpy()

    assert 150 < np.count_nonzero(sample) < 250


def test_bounds_of_booleans_are_obeyed():
    spec = BoundedTensorSpec([2], tf.bool, [False, True], True)

    sample = draw(spec, 50)

    assert {False, True} == set(sample[:, 0].tolist())
    assert {True} == set(sample[:, 1].tolist())


def test_text_is_a_small_number():
    sample = tensor_spec.sample_spec_nest(TensorSpec([400], tf.string), 1).numpy()

    assert {str(number).encode() for number in range(11)} == set(sample.tolist())


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
def test_numbers_are_restricted_further(spec, minimum, maximum, expected):
    sample = tensor_spec.sample_spec_nest(spec, 3, (99,), minimum, maximum)

    assert expected == np.unique(sample.numpy()).tolist()


def test_a_restriction_holds_for_each_element():
    spec = BoundedTensorSpec([3], tf.float32, [0, 5, -5], [1, 9, 9])

    sample = tensor_spec.sample_spec_nest(spec, 3, (99,), 0.5, 7).numpy()

    assert (sample >= [0.5, 5, 0.5]).all()
    assert (sample <= [1, 7, 7]).all()


def test_a_restriction_must_leave_values(message_of):
    spec = {"a": BoundedTensorSpec([2], tf.int32, 0, [1, 5])}

    message = message_of(
        SpecError, lambda: tensor_spec.sample_spec_nest(spec, minimum=1.5, maximum=8)
    )

    assert (
        "BoundedTensorSpec(shape=(2,), dtype=int32) at ['a'] has no values left: they "
        "are between 0 and [1, 5], and shall be between 2 and 8."
    ) == message


@pytest.mark.parametrize("bound", ["1", [1], np.nan])
def test_a_restriction_is_a_number(bound, message_of):
    message = message_of(
        TypeError, lambda: tensor_spec.sample_spec_nest((), maximum=bound)
    )

    assert f"maximum is a number, not {bound!r}." == message


def test_what_is_no_number_is_not_sampled(message_of):
    spec = {"a": TensorSpec([], tf.complex64)}

    message = message_of(TypeError, lambda: tensor_spec.sample_spec_nest(spec))

    assert (
        "Cannot sample TensorSpec(shape=(), dtype=complex64) at ['a']: no random value "
        "is defined for complex64."
    ) == message


def test_ragged_tensors_are_not_sampled(message_of):
    spec = {"a": tf.RaggedTensorSpec([2, None])}

    message = message_of(TypeError, lambda: tensor_spec.sample_spec_nest(spec))

    assert (
        "Spec type not supported at ['a']: RaggedTensorSpec(TensorShape([2, None]), "
        "tf.float32, 1, tf.int64)."
    ) == message


def test_what_is_no_spec_is_not_sampled(message_of):
    message = message_of(
        TypeError, lambda: tensor_spec.sample_spec_nest({"camera": [tf.int32]})
    )

    assert (
        "Spec type not supported at ['camera'][0]: tf.int32, which is of type "
        "DType. Tensor specs are expected."
    ) == message


@pytest.mark.parametrize("dtype", ["float32", "int8", "bool", "string"])
@pytest.mark.parametrize("shape", [[3, 4], [50], [2], [], [0, 3]])
def test_a_sparse_sample_has_a_few_elements_at_places_of_their_own(shape, dtype):
    spec = {"a": [tf.SparseTensorSpec(shape, dtype)]}

    (sparse,) = tensor_spec.sample_spec_nest(spec, 1, (2,))["a"]

    room = int(np.prod([2, *shape]))
    ordered = tf.sparse.reorder(sparse)
    assert (spec["a"][0].dtype, [2, *shape]) == (sparse.dtype, sparse.shape.as_list())
    assert min(room, 7) == len(sparse.values)
    assert len(sparse.indices) == len(
        {tuple(index) for index in sparse.indices.numpy()}
    )
    assert ordered.indices.numpy().tolist() == sparse.indices.numpy().tolist()
    tf.sparse.to_dense(sparse)  # It refuses indices that are out of bounds.


def test_a_sparse_sample_takes_every_place():
    spec = tf.SparseTensorSpec([3, 5], tf.float32)

    places = {
        tuple(index)
        for seed in range(30)
        for index in tensor_spec.sample_spec_nest(spec, seed).indices.numpy()
    }

    assert 15 == len(places)


def test_the_numbers_of_a_sparse_sample_are_restricted():
    spec = tf.SparseTensorSpec([9], tf.int32)

    sparse = tensor_spec.sample_spec_nest(spec, 1, minimum=3, maximum=4)

    assert set(sparse.values.numpy()) <= {3, 4}


def test_a_sparse_sample_needs_sizes_that_are_known_early(message_of):
    spec = [tf.SparseTensorSpec([9], tf.int32)]

    message = message_of(
        NotImplementedError,
        lambda: graph_of(
            lambda size: tensor_spec.sample_spec_nest(spec, None, [size]),
            tf.TensorSpec([], tf.int32),
        ),
    )

    assert (
        "SparseTensorSpec(TensorShape([9]), tf.int32) at [0] can only be sampled with "
        "outer_dims that are known when the function is traced."
    ) in message


def test_dimensions_are_added_to_sparse_tensors_in_a_nest():
    spec = {"a": [tf.SparseTensorSpec([3], tf.int32)]}

    assert {"a": [tf.SparseTensorSpec([2, 3], tf.int32)]} == (
        tensor_spec.add_outer_dims_nest(spec, (2,))
    )


def test_dimensions_are_removed_from_sparse_tensors_in_a_nest():
    spec = {"a": [tf.SparseTensorSpec([2, 3], tf.int32)]}

    assert {"a": [tf.SparseTensorSpec([3], tf.int32)]} == (
        tensor_spec.remove_outer_dims_nest(spec, 1)
    )


def test_sparse_tensors_get_another_dtype():
    assert tf.SparseTensorSpec([2], tf.int8) == (
        tensor_spec.with_dtype(tf.SparseTensorSpec([2], tf.int32), tf.int8)
    )


@given(strategies.spec_nests(max_depth=2), strategies.outer_dims())
def test_zeros_are_made_for_every_spec(spec, outer_dims):
    zeros = tensor_spec.zero_spec_nest(tensor_spec.from_spec(spec), outer_dims)

    for leaf, tensor in zip(nest.flatten(spec), nest.flatten(zeros), strict=True):
        assert tf.as_dtype(leaf.dtype) == tensor.dtype
        assert [*outer_dims, *leaf.shape] == tensor.shape.as_list()
        assert not np.any(np.asarray(tensor.numpy(), object))


@pytest.mark.parametrize("specs", [(), [], {}])
def test_no_specs_have_no_zeros(specs):
    assert specs == tensor_spec.zero_spec_nest(specs)


@pytest.mark.parametrize(
    "spec", [tf.SparseTensorSpec([2]), tf.RaggedTensorSpec([2, None])]
)
def test_there_are_no_zeros_of_other_kinds(spec, message_of):
    message = message_of(
        NotImplementedError, lambda: tensor_spec.zero_spec_nest({"camera": [spec]})
    )

    assert f"Spec type not supported at ['camera'][0]: {spec!r:.80}." == message


def test_zeros_need_all_sizes(message_of):
    message = message_of(
        SpecError, lambda: tensor_spec.zero_spec_nest([TensorSpec(None, tf.int32)])
    )

    assert (
        "A tensor of zeros needs all sizes, and TensorSpec(shape=<unknown>, "
        "dtype=int32) at [0] leaves some open."
    ) == message


@given(strategies.spec_nests(max_depth=2), strategies.outer_dims())
def test_dimensions_that_are_added_can_be_removed(spec, outer_dims):
    tensors = tensor_spec.from_spec(spec)

    longer = tensor_spec.add_outer_dims_nest(tensors, outer_dims)
    back = tensor_spec.remove_outer_dims_nest(longer, len(outer_dims))

    for leaf, long, short in zip(
        *map(nest.flatten, (tensors, longer, back)), strict=True
    ):
        assert [*outer_dims, *leaf.shape] == long.shape.as_list()
        assert parts(leaf) == parts(short)
        assert parts(leaf)[2:] == parts(long)[2:]


@pytest.mark.parametrize("outer_dims", [(None, 2), [None, 2]])
def test_added_dimensions_may_be_of_any_size(outer_dims):
    spec = tensor_spec.add_outer_dims_nest(TensorSpec([3], tf.int32, "a"), outer_dims)

    assert ([None, 2, 3], "a") == (spec.shape.as_list(), spec.name)


def test_one_dimension_is_of_any_size_unless_given():
    spec = [BoundedTensorSpec([2], tf.int32, 0, [1, 2], "a")]

    (of_any,), (of_five,) = (
        tensor_spec.add_outer_dim(spec),
        tensor_spec.add_outer_dim(spec, 5),
    )

    assert [None, 2] == of_any.shape.as_list()
    assert [5, 2] == of_five.shape.as_list()
    assert (BoundedTensorSpec, (0, [1, 2]), "a") == (
        type(of_any),
        bounds_of(of_any),
        of_any.name,
    )


def test_a_shape_of_unknown_rank_stays_unknown():
    spec = TensorSpec(None, tf.int32)

    assert spec == tensor_spec.add_outer_dim(spec, 2)
    assert spec == tensor_spec.remove_outer_dims_nest(spec, 2)


def test_array_specs_become_tensor_specs_with_other_dimensions():
    spec = BoundedArraySpec((2, 3), np.int8, 0, 1, "a")

    assert "BoundedTensorSpec" == parts(tensor_spec.add_outer_dim(spec, 2))[0]
    assert "BoundedTensorSpec" == parts(tensor_spec.remove_outer_dims_nest(spec, 1))[0]


@pytest.mark.parametrize(
    ("outer_dims", "text"),
    [
        (2, "outer_dims must be a tuple or list of dimensions, not 2."),
        ({2}, "outer_dims must be a tuple or list of dimensions, not {2}."),
        ([-1], "outer_dims holds -1; a size is an integer of at least 0."),
        ([None, "2"], "outer_dims holds '2'; a size is an integer of at least 0."),
    ],
)
def test_added_dimensions_are_a_tuple_or_list_of_sizes(outer_dims, text, message_of):
    message = message_of(
        ValueError, lambda: tensor_spec.add_outer_dims_nest((), outer_dims)
    )

    assert text == message


@pytest.mark.parametrize(
    ("shape", "expected"),
    [([2, 3], (0, [8, 9, 7])), ([None, 3], (0, [8, 9, 7])), (None, (0, 9))],
)
def test_bounds_widen_to_hold_all_rows(shape, expected):
    spec = BoundedTensorSpec(shape, tf.int32, 0, [[1, 9, 7], [8, 2, 5]])

    assert expected == bounds_of(tensor_spec.remove_outer_dims_nest(spec, 1))


def test_bounds_of_no_rows_become_the_limits():
    none = np.zeros([0, 2])

    spec = tensor_spec.remove_outer_dims_nest(
        BoundedTensorSpec([0, 2], tf.uint8, none, none), 1
    )

    assert (0, 255) == bounds_of(spec)


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (False, True, (False, True)),
        (True, True, (True, True)),
        ([[0, 0, 1], [0, 1, 1]], True, ([False, False, True], True)),
        (np.zeros([0, 3]), np.zeros([0, 3]), (False, True)),
    ],
)
def test_bounds_of_booleans_widen_to_hold_all_rows(low, high, expected):
    shape = [np.shape(low)[0] if np.ndim(low) else 2, 3]
    spec = BoundedTensorSpec(shape, tf.bool, low, high, "door")

    shorter = tensor_spec.remove_outer_dims_nest({"a": spec}, 1)["a"]

    assert ([3], tf.bool, "door") == (
        shorter.shape.as_list(),
        shorter.dtype,
        shorter.name,
    )
    assert expected == bounds_of(shorter)


@pytest.mark.parametrize(
    ("dtype", "low", "high"),
    [(tf.string, "a", "b"), (tf.complex64, 0, 1j), (tf.qint8, 0, 1)],
)
def test_bounds_without_an_order_stay_as_long_as_they_fit(dtype, low, high):
    spec = BoundedTensorSpec([2, 3], dtype, low, high, "a")
    of_rows = BoundedTensorSpec([2, 3], dtype, [[low] * 3] * 2, high, "a")

    kept, dropped = tensor_spec.remove_outer_dims_nest([spec, of_rows], 1)

    assert (spec.minimum, spec.maximum) == (kept.minimum, kept.maximum)
    assert TensorSpec([3], dtype, "a") == dropped
    assert type(dropped) is TensorSpec


@pytest.mark.parametrize(
    ("shape", "count", "rank"),
    [([2], 2, ", which has 1"), ([2], -1, ", which has 1"), (None, -1, "")],
)
def test_no_more_dimensions_are_removed_than_there_are(shape, count, rank, message_of):
    spec = {"camera": [TensorSpec(shape, tf.int32)]}

    message = message_of(
        ValueError, lambda: tensor_spec.remove_outer_dims_nest(spec, count)
    )

    assert (
        f"Cannot remove {count} outer dimensions from TensorSpec(shape="
        f"{tf.TensorShape(shape)}, dtype=int32) at ['camera'][0]{rank}."
    ) == message


def test_dimensions_are_removed_by_their_number(message_of):
    message = message_of(
        TypeError, lambda: tensor_spec.remove_outer_dims_nest((), (2,))
    )

    assert "num_outer_dims is a number of dimensions, not (2,)." == message


@given(
    strategies.spec_nests(max_depth=2), st.sampled_from([*NUMBERS, "bool", "string"])
)
def test_all_but_the_dtype_stays(spec, dtype):
    # Not above one, so that there are values in common.
    restricted = nest.map_structure(_with_zero, spec)

    changed = tensor_spec.with_dtype(restricted, dtype)

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


@pytest.mark.parametrize(
    ("bounds", "dtype", "expected"),
    [
        ((-1.5, 1.5), "int32", (-1, 1)),
        ((-1e300, 1e300), "uint8", (0, 255)),
        ((-1e300, 1e300), "int64", (-(2**63), 2**63 - 1)),
        ((-np.inf, 7), "uint64", (0, 7)),
        ((-1e300, [1, 2]), "float16", (-65504, [1, 2])),
        ((0, 1), "float32", (0, 1)),
    ],
)
def test_bounds_go_as_far_as_the_dtype_does(bounds, dtype, expected):
    spec = BoundedTensorSpec([2], tf.float64, *bounds)

    assert expected == bounds_of(tensor_spec.with_dtype(spec, dtype))


def test_bounds_of_large_integers_keep_all_digits():
    spec = BoundedTensorSpec([], tf.int64, 2**53 + 1, 2**63 - 1)

    assert bounds_of(spec) == bounds_of(tensor_spec.with_dtype(spec, tf.uint64))


@pytest.mark.parametrize(
    ("dtype", "bound"), [(tf.string, "a"), (tf.complex64, 1j), (tf.qint8, 1)]
)
def test_bounds_without_an_order_do_not_become_numbers(dtype, bound):
    spec = BoundedTensorSpec([2], dtype, bound, bound, "a")

    assert TensorSpec([2], tf.int8, "a") == tensor_spec.with_dtype(spec, tf.int8)


def test_a_dtype_without_values_in_common_is_refused(message_of):
    spec = {"a": BoundedTensorSpec([2], tf.int32, [-9, -9], [-1, 1])}

    message = message_of(SpecError, lambda: tensor_spec.with_dtype(spec, tf.uint8))

    assert (
        "BoundedTensorSpec(shape=(2,), dtype=int32) at ['a'] has no values in common "
        "with uint8: they are between -9 and [-1, 1]."
    ) == message


def test_specs_can_be_made_while_a_function_is_traced():
    @tf.function
    def zeros():
        spec = tensor_spec.from_spec({"b": ArraySpec((2,), np.int32)})
        longer = tensor_spec.add_outer_dim(tensor_spec.with_dtype(spec, tf.int8), 3)
        back = tensor_spec.from_spec(tensor_spec.to_array_spec(longer))
        return tensor_spec.zero_spec_nest(back, (tf.constant(1),))

    assert [1, 3, 2] == zeros()["b"].shape.as_list()


def test_outer_dimensions_may_be_tensors():
    spec = tf.TensorSpec([4], tf.float32)
    longer = tensor_spec.add_outer_dims_nest(spec, (tf.constant(3), 2))

    assert [3, 2, 4] == longer.shape.as_list()
