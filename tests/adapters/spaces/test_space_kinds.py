"""Which space a spec is, and specs that remember it."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from gymnasium import spaces

from envkit import ArraySpec, BoundedArraySpec
from envkit.adapters.spaces.space_kinds import (
    SpecOfKind,
    kind_of_space,
    kind_of_spec,
    usual_kind,
)
from envkit.specs import (
    ObjectSpec,
    TextSpec,
    add_outer_dims_nest,
    remove_outer_dims_nest,
)


@pytest.mark.parametrize(
    ("spec", "kind"),
    [
        (BoundedArraySpec((), np.int64, 0, 5), "Discrete"),
        (BoundedArraySpec((), np.uint8, 250, 255), "Discrete"),
        (BoundedArraySpec((), np.int64, -(2**62), 2**62), "Box"),
        (BoundedArraySpec((), np.int8), "Box"),
        (BoundedArraySpec((), np.int8, 0, 1), "Discrete"),
        (BoundedArraySpec((3,), np.int8, 0, 1), "MultiBinary"),
        (BoundedArraySpec((2, 3), np.int8, 0, 1), "MultiBinary"),
        (BoundedArraySpec((2, 0), np.int8, 0, 1), "Box"),
        (BoundedArraySpec((3,), np.int32, 0, [1, 2, 3]), "MultiDiscrete"),
        (BoundedArraySpec((0,), np.int32, 0, 1), "Box"),
        (BoundedArraySpec((3,), np.int32), "Box"),
        (BoundedArraySpec((3,), np.uint8, 0, 255), "Box"),
        (BoundedArraySpec((3, 3), np.int32, 0, 2), "Box"),
        (BoundedArraySpec((), np.float32, 0, 1), "Box"),
        (ArraySpec((), np.int64), "Box"),
        (ArraySpec((2,), np.bool_), "Box"),
        (ArraySpec((), "<U5"), "Text"),
        (TextSpec((), "<U5"), "Text"),
        (ArraySpec((2,), "<U5"), ""),
        (ArraySpec((), "S5"), ""),
        (ArraySpec((), np.complex64), ""),
        (ObjectSpec(), ""),
    ],
    ids=str,
)
def test_a_spec_has_a_usual_kind_of_space(spec, kind):
    assert kind == usual_kind(spec)
    assert kind == kind_of_spec(spec)


def test_a_spec_that_remembers_its_kind_is_like_any_other():
    spec = SpecOfKind((2,), np.int64, 0, [4, 5], "place", kind="Box")
    plain = BoundedArraySpec((2,), np.int64, 0, [4, 5], "place")

    assert "Box" == kind_of_spec(spec)
    assert spec == plain
    assert plain == spec
    assert repr(plain) == repr(spec)


@pytest.mark.parametrize(
    "copied",
    [
        lambda spec: pickle.loads(pickle.dumps(spec)),
        lambda spec: spec.replace(name="other"),
        lambda spec: add_outer_dims_nest(spec, (3,)),
        lambda spec: remove_outer_dims_nest(spec, 1),
    ],
    ids=["pickled", "replaced", "batched", "unbatched"],
)
def test_copies_of_a_spec_remember_the_kind_too(copied):
    spec = SpecOfKind((2,), np.int64, 0, [4, 5], "place", kind="Box")

    assert "Box" == kind_of_spec(copied(spec))


def test_a_derived_space_is_of_the_kind_of_its_base():
    class Angle(spaces.Box):
        pass

    assert "Box" == kind_of_space(Angle(-1, 1))


def test_what_is_no_space_is_of_no_kind():
    assert "" == kind_of_space([3])
