"""Specs of values that are no arrays."""

from __future__ import annotations

import copy
import dataclasses
import pickle

import numpy as np
import pytest

from envkit.specs import (
    ArraySpec,
    ObjectSpec,
    add_outer_dims_nest,
    check_arrays_nest,
    explain,
    remove_outer_dims_nest,
    sample_spec_nest,
)


@dataclasses.dataclass(frozen=True)
class Upto:
    """Tuples of so many numbers at most."""

    most: int

    def contains(self, value):
        return isinstance(value, tuple) and len(value) <= self.most

    def sample(self, rng):
        return tuple(range(int(rng.random() * (self.most + 1))))


SPEC = ObjectSpec(name="path", kind=Upto(3))
COPIES = {
    "copied": copy.deepcopy,
    "pickled": lambda spec: pickle.loads(pickle.dumps(spec)),
    "from_spec": ObjectSpec.from_spec,
    "replaced": lambda spec: spec.replace(name="path"),
    "batched and unbatched": lambda spec: remove_outer_dims_nest(
        add_outer_dims_nest(spec, (2,)), 1
    ),
}


def test_it_describes_one_object_in_an_array():
    assert ((), np.dtype(object)) == (SPEC.shape, SPEC.dtype)


@pytest.mark.parametrize(
    ("value", "fits"),
    [((), True), ((1, 2, 3), True), ((1, 2, 3, 4), False), (3, False)],
)
def test_its_kind_knows_the_values(value, fits):
    array = ObjectSpec.wrap(value)

    assert fits is SPEC.contains(value)
    assert fits is SPEC.check_array(array)
    assert fits is check_arrays_nest([array], [SPEC])


@pytest.mark.parametrize("value", [(1, 2), None, 3, np.array(3)], ids=str)
def test_a_value_without_the_array_does_not_fit(value):
    assert not SPEC.check_array(value)


def test_without_a_kind_every_object_fits():
    assert ObjectSpec().check_array(ObjectSpec.wrap({"a": [1]}))


def test_wrapping_keeps_the_object_itself():
    value = [1, [2]]

    array = ObjectSpec.wrap(value)

    assert ((), value) == (array.shape, array[()])
    assert value is array[()]


@pytest.mark.parametrize("copied", COPIES.values(), ids=COPIES)
def test_a_copy_has_the_same_kind(copied):
    other = copied(SPEC)

    assert SPEC == other
    assert (ObjectSpec, "path", Upto(3)) == (type(other), other.name, other.kind)


@pytest.mark.parametrize(
    "other",
    [
        ObjectSpec(),
        ObjectSpec(kind=Upto(4)),
        ObjectSpec((1,), kind=Upto(3)),
        ArraySpec((), object),
    ],
    ids=str,
)
def test_a_spec_that_says_something_else_is_not_equal(other):
    assert SPEC != other
    assert other != SPEC


def test_a_spec_of_objects_becomes_one_without_a_kind():
    assert ObjectSpec((2,)) == ObjectSpec.from_spec(ArraySpec((2,), object))


def test_a_spec_shows_its_kind():
    assert (
        "ObjectSpec(shape=(), dtype=object, kind=Upto(most=3), name='path')"
    ) == repr(SPEC)
    assert "ObjectSpec(shape=(), dtype=object)" == repr(ObjectSpec())


@pytest.mark.parametrize(
    "make_rng",
    [np.random.default_rng, np.random.RandomState],
    ids=["Generator", "RandomState"],
)
def test_its_kind_draws_the_samples(make_rng):
    samples = sample_spec_nest(SPEC, make_rng(0), outer_dims=(40,))

    assert explain(samples, SPEC, outer_dims=(40,)) is None
    assert {(), (0,), (0, 1), (0, 1, 2)} == set(samples.tolist())


def test_one_sample_is_an_array_too():
    sample = sample_spec_nest(SPEC, np.random.default_rng(0))

    assert SPEC.check_array(sample)


def test_without_a_kind_nothing_can_be_drawn():
    with pytest.raises(TypeError) as caught:
        sample_spec_nest(ObjectSpec(), np.random.default_rng(0))

    assert (
        "Cannot sample ObjectSpec(shape=(), dtype=object): no random value is defined "
        "for object."
    ) == str(caught.value)


def test_a_value_that_is_none_of_its_kind_is_told():
    assert (
        "The value does not fit its spec.\n\n"
        "  expected   ObjectSpec(shape=(), dtype=object, kind=Upto(most=3), "
        "name='path')\n"
        "  got        array of shape (), dtype object that holds a tuple of 4 "
        "elements\n\n"
        "It holds a tuple of 4 elements, which the spec does not know as a value."
    ) == explain(ObjectSpec.wrap((1, 2, 3, 4)), SPEC)


def test_a_wrong_value_of_a_batch_is_told():
    batch = np.array([None, None], object)
    batch[0], batch[1] = (1,), "no"

    explanation = explain(batch, SPEC, outer_dims=(2,))

    assert (
        "It holds the string 'no', which the spec does not know as a value."
        == explanation.split("\n")[-1]
    )


def test_it_is_of_no_other_dtype():
    with pytest.raises(TypeError) as caught:
        ObjectSpec((), np.int64)

    assert "ObjectSpec is of dtype object, not int64." == str(caught.value)
