"""`SpecSpace`: a space of Gymnasium for a spec that none of Gymnasium's describes."""

from __future__ import annotations

import functools
from typing import Any

from envkit.specs.array_spec import ArraySpec
from envkit.specs.object_spec import ObjectSpec
from envkit.specs.sampling import sample_spec_nest

__all__ = ["spec_space"]


def spec_space(spec: ArraySpec) -> Any:
    """Makes the space whose members are what fits a spec.

    Of an `ObjectSpec` the members are the values themselves, without an array.

    Example:
        >>> import numpy as np
        >>> space = spec_space(ArraySpec((2,), np.complex64))
        >>> space, space.contains(np.zeros(2, np.complex64))
        (SpecSpace(ArraySpec(shape=(2,), dtype=complex64)), True)
    """
    return _class()(spec)


@functools.cache
def _class() -> Any:
    from gymnasium import spaces

    class SpecSpace(spaces.Space):  # type: ignore[type-arg]  # only known at run time
        """The members of a spec."""

        def __init__(self, spec: ArraySpec, seed: Any = None) -> None:
            self.spec = spec
            super().__init__(spec.shape, spec.dtype, seed)

        @property
        def is_np_flattenable(self) -> bool:
            return False

        def sample(self, mask: Any = None, probability: Any = None) -> Any:
            sample = sample_spec_nest(self.spec, self.np_random)
            return sample[()] if isinstance(self.spec, ObjectSpec) else sample

        def contains(self, x: Any) -> bool:
            if isinstance(self.spec, ObjectSpec):
                return self.spec.contains(x)
            return self.spec.check_array(x)

        def __repr__(self) -> str:
            return f"SpecSpace({self.spec!r})"

        def __eq__(self, other: object) -> bool:
            return isinstance(other, SpecSpace) and bool(self.spec == other.spec)

        # The class is made where it is needed, so it has no place to be found at.
        def __reduce__(self) -> tuple[Any, ...]:
            return spec_space, (self.spec,), vars(self)

    return SpecSpace
