"""Making arrays of what people pass, and copies of what somebody else writes to."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

from envkit.types import Array

__all__ = ["FLOATS", "PythonNumbers", "as_array", "copied_arrays", "given_floats"]

# The dtypes of floats that an action may keep, see `ArraySpec.keeps_floats`.
FLOATS = tuple(map(np.dtype, (np.float64, np.float32, np.float16)))


class PythonNumbers(np.ndarray[Any, Any]):
    """An array of float64 whose numbers came as Python's own, in lists.

    NumPy computes with Python's numbers in another way than with its own: float32 plus
    one of them stays float32. An environment that took lists may take one of this for
    the list that it was, and to everything else it is an array.

    Example:
        >>> np.zeros(2).view(PythonNumbers).tolist()
        [0.0, 0.0]
    """


def as_array(value: Any) -> Array:
    """Does what `numpy.asarray` does, without raising for lists of different lengths.

    Those are no array, and become one of dtype object without dimensions: whoever
    looks at dtype and shape afterwards refuses them in words of their own.

    Example:
        >>> as_array([[1], [2]]).shape, as_array([[1], [2, 3]]).dtype
        ((2, 1), dtype('O'))
    """
    try:
        return np.asarray(value)
    except ValueError:
        return np.array(None)


def given_floats(value: Any) -> Array | None:
    """Returns numbers as floats of the width in which they came.

    Integers become floats of the width that NumPy chooses when it adds them to float32.

    Returns:
        An array of one of the dtypes `FLOATS`, or `None` if `value` has other things
        than real numbers.

    Example:
        >>> given_floats(np.zeros(2, np.float32)).dtype, given_floats([0.5]).dtype
        (dtype('float32'), dtype('float64'))
    """
    array = value if isinstance(value, np.ndarray) else as_array(value)
    if array.dtype in FLOATS:
        return array
    if array.dtype.kind in "biu":
        return array.astype(np.result_type(array.dtype, np.float32))
    if array.dtype.kind == "f":  # Bytes in another order, or more of them.
        native = array.dtype.newbyteorder("=")
        return array.astype(native if native in FLOATS else np.float64)
    # Numbers of Python's, or rows of several widths.
    return given_floats(array.tolist()) if array is value and array.ndim else None


def copied_arrays(value: Any) -> Any:
    """Copies arrays, and the dictionaries, lists and tuples that they are in.

    Environments may go on writing to the infos that they have returned. Everything else
    stays the object that it is: it may be an environment, or what cannot be copied.

    Example:
        >>> board = np.array([1, 2])
        >>> info = {"board": board, "seen": [board]}
        >>> kept = copied_arrays(info)
        >>> board[:] = 0
        >>> kept
        {'board': array([1, 2]), 'seen': [array([1, 2])]}
    """
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, dict):
        own = copy.copy(value)
        own.update((key, copied_arrays(item)) for key, item in value.items())
        return own
    if type(value) in {list, tuple}:
        return type(value)(map(copied_arrays, value))
    return value
