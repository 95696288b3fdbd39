"""The names of `tf_agents.specs.array_spec`, for users of TF-Agents."""

from __future__ import annotations

from envkit.specs.arrays import (
    ArraySpec,
    BoundedArraySpec,
    is_bounded,
    is_continuous,
    is_discrete,
    update_spec_shape,
)
from envkit.specs.batching import add_outer_dims_nest, remove_outer_dims_nest
from envkit.specs.sampling import sample_bounded_spec, sample_spec_nest
from envkit.specs.validation import assert_arrays_spec_nest, check_arrays_nest

__all__ = [
    "ArraySpec",
    "BoundedArraySpec",
    "add_outer_dims_nest",
    "assert_arrays_spec_nest",
    "check_arrays_nest",
    "is_bounded",
    "is_continuous",
    "is_discrete",
    "remove_outer_dims_nest",
    "sample_bounded_spec",
    "sample_spec_nest",
    "update_spec_shape",
]
