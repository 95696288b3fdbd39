"""Specs describe arrays, nests and whole environments."""

from envkit.specs import array_spec
from envkit.specs.arrays import (
    ArraySpec,
    BoundedArraySpec,
    is_bounded,
    is_continuous,
    is_discrete,
    update_spec_shape,
)
from envkit.specs.batching import add_outer_dims_nest, remove_outer_dims_nest
from envkit.specs.environment_spec import EnvironmentSpec
from envkit.specs.sampling import sample_bounded_spec, sample_spec_nest
from envkit.specs.special import (
    Choices,
    ObjectKind,
    ObjectSpec,
    Strings,
    TextSpec,
)
from envkit.specs.validation import (
    assert_arrays_spec_nest,
    check_arrays_nest,
    check_fits,
    explain,
)

__all__ = [
    "ArraySpec",
    "BoundedArraySpec",
    "Choices",
    "EnvironmentSpec",
    "ObjectKind",
    "ObjectSpec",
    "Strings",
    "TextSpec",
    "add_outer_dims_nest",
    "array_spec",
    "assert_arrays_spec_nest",
    "check_arrays_nest",
    "check_fits",
    "explain",
    "is_bounded",
    "is_continuous",
    "is_discrete",
    "remove_outer_dims_nest",
    "sample_bounded_spec",
    "sample_spec_nest",
    "update_spec_shape",
]
