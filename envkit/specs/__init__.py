"""Specs: what arrays, nests and whole environments must look like."""

from typing import TYPE_CHECKING

from envkit.lazy_names import lazy_names
from envkit.specs import array_spec
from envkit.specs.array_spec import (
    ArraySpec,
    BoundedArraySpec,
    is_bounded,
    is_continuous,
    is_discrete,
    update_spec_shape,
)
from envkit.specs.batching import add_outer_dims_nest, remove_outer_dims_nest
from envkit.specs.environment_spec import EnvironmentSpec
from envkit.specs.object_spec import ObjectKind, ObjectSpec
from envkit.specs.text_spec import TextSpec
from envkit.specs.validation import (
    assert_arrays_spec_nest,
    check_arrays_nest,
    check_fits,
    explain,
)

if TYPE_CHECKING:
    from envkit.specs.sampling import sample_bounded_spec, sample_spec_nest

# An environment that runs draws nothing.
_HOMES = dict.fromkeys(
    ("sample_bounded_spec", "sample_spec_nest"), "envkit.specs.sampling"
)

__all__ = [
    "ArraySpec",
    "BoundedArraySpec",
    "EnvironmentSpec",
    "ObjectKind",
    "ObjectSpec",
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

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
