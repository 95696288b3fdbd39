"""How tests compare what is returned, and what is raised."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from envkit import nest


def told(
    call: Callable[..., object], *args: Any, **kwargs: Any
) -> tuple[type[BaseException], str]:
    """Returns the kind and the whole message of the error that a call must raise."""
    with pytest.raises(BaseException) as raised:  # noqa: PT011  # the caller compares it
        call(*args, **kwargs)
    return raised.type, str(raised.value)


def bits(value: Any) -> list[tuple[str, tuple[int, ...], bytes]]:
    """Returns all there is to compare in a nest of arrays: dtypes, shapes and bytes."""
    leaves = map(np.asarray, nest.flatten(value))
    return [(leaf.dtype.str, leaf.shape, leaf.tobytes()) for leaf in leaves]
