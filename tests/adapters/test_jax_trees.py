"""Trees of JAX become nests of envkit."""

from __future__ import annotations

import collections
import dataclasses

import numpy as np
import pytest

from envkit.adapters.jax.program import from_arrays, plain_nest, to_arrays

Pair = collections.namedtuple("Pair", ["left", "right"])


@dataclasses.dataclass
class Seen:
    near: int
    far: object


def test_dataclasses_at_any_depth_become_dictionaries():
    tree = [Seen(1, Pair(Seen(2, ()), {"a": Seen(3, None)}))]
    assert [
        {
            "near": 1,
            "far": Pair({"near": 2, "far": ()}, {"a": {"near": 3, "far": None}}),
        }
    ] == plain_nest(tree)


def test_a_dataclass_itself_is_left_alone():
    assert Seen is plain_nest(Seen)


def test_a_tree_with_random_keys_survives_a_round_trip():
    jax = pytest.importorskip("jax", reason="jax is not installed")
    tree = {"key": jax.random.key(7), "place": jax.numpy.arange(3)}
    again = from_arrays(to_arrays(tree), tree)
    assert tree["key"].dtype == again["key"].dtype
    assert jax.random.uniform(tree["key"]) == jax.random.uniform(again["key"])
    np.testing.assert_array_equal(tree["place"], again["place"])
