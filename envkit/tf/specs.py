"""The names of `tf_agents.specs`: specs of arrays and tensors, and their functions.

Without TensorFlow, use `envkit.specs` for specs of arrays.
"""

from __future__ import annotations

from envkit.specs import ArraySpec, BoundedArraySpec, array_spec
from envkit.tf import tensor_spec
from envkit.tf.tensor_spec import (
    BoundedTensorSpec,
    TensorSpec,
    from_spec,
    is_bounded,
    is_continuous,
    is_discrete,
    sample_spec_nest,
    zero_spec_nest,
)

__all__ = [
    "ArraySpec",
    "BoundedArraySpec",
    "BoundedTensorSpec",
    "TensorSpec",
    "array_spec",
    "from_spec",
    "is_bounded",
    "is_continuous",
    "is_discrete",
    "sample_spec_nest",
    "tensor_spec",
    "zero_spec_nest",
]
