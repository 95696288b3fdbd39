"""Random numbers of one row, equal in plain Python and compiled code: `Rng`.

The stream is the same as in `RowStreams`: a counter and a key per row. All
distributions are built from one kind of number, in arithmetic that every machine rounds
alike. The methods below run in plain Python, and numba compiles the same methods.
"""

from __future__ import annotations

import functools
import math
from types import FunctionType
from typing import Any

from envkit.envs.kernels import compiled
from envkit.envs.streams import drawn
from envkit.types import Array

__all__ = ["Rng", "numba_rng"]

_HALF_ROOT = math.sqrt(0.5)
_LN2 = math.log(2.0)
# Series in the square of their argument, from the last term: of artanh(x) / x, of
# sin(x) / x and of cos(x). Within the ranges below they are exact to the last bits.
_ARTANH = tuple(1.0 / (2 * n + 1) for n in range(11, -1, -1))
_SINE = tuple((-1.0) ** n / math.factorial(2 * n + 1) for n in range(8, -1, -1))
_COSINE = tuple((-1.0) ** n / math.factorial(2 * n) for n in range(8, -1, -1))


class Rng:
    """Draws random numbers for one row; `reset` and `step` get one as `rng`.

    The names are the same as in `numpy.random.Generator`. A row's numbers depend only
    on its seed and on earlier draws.

    Example:
        >>> import numpy as np
        >>> from envkit.envs.streams import RowStreams
        >>> streams = RowStreams([7])
        >>> rng = Rng(streams.positions, streams.keys, 0)
        >>> with np.errstate(over="ignore"):  # Its counter runs over.
        ...     0 <= rng.random() < 1, rng.integers(3, 5) in (3, 4)
        (True, True)
    """

    __slots__ = ("_keys", "_positions", "_row")

    def __init__(self, positions: Array, keys: Array, row: int) -> None:
        """Draws from the stream of one row."""
        self._positions, self._keys, self._row = positions, keys, row

    def random(self) -> float:
        """Draws a float in [0, 1)."""
        row = self._row
        self._positions[row], share = drawn(self._positions[row], self._keys[row])
        return float(share)

    # The methods below are compiled as they stand, with another type of `self`.

    def integers(self, low: int, high: int) -> int:
        """Draws an integer, including `low` and excluding `high`."""
        return low + int(self.random() * (high - low))

    def uniform(self, low: float, high: float) -> float:
        """Draws a float in [low, high)."""
        return low + self.random() * (high - low)

    def normal(self) -> float:
        """Draws a float from the standard normal distribution."""
        # Box-Muller. Libraries differ in the last bits of logarithms and sines, so both
        # are series here.
        mantissa, exponent = math.frexp(1.0 - self.random())
        if mantissa < _HALF_ROOT:
            mantissa *= 2.0
            exponent -= 1
        ratio = (mantissa - 1.0) / (mantissa + 1.0)
        series = 0.0
        for factor in _ARTANH:
            series = series * (ratio * ratio) + factor
        logarithm = exponent * _LN2 + 2.0 * ratio * series
        quarters = 4.0 * self.random()
        quarter = int(quarters + 0.5)
        angle = (quarters - quarter) * (0.5 * math.pi)
        wave = 0.0
        if quarter % 2:
            for factor in _SINE:
                wave = wave * (angle * angle) + factor
            wave *= angle
        else:
            for factor in _COSINE:
                wave = wave * (angle * angle) + factor
        if quarter == 1 or quarter == 2:
            wave = -wave
        return math.sqrt(-2.0 * logarithm) * wave

    def shuffle(self, array: Any) -> None:
        """Shuffles a one-dimensional array."""
        for last in range(len(array) - 1, 0, -1):
            other = int(self.random() * (last + 1))
            kept = array[last]
            array[last] = array[other]
            array[other] = kept


@functools.cache
def numba_rng() -> Any:
    """Returns the function that makes an `Rng` in compiled code."""
    from numba.core import cgutils, types
    from numba.extending import intrinsic as numba_intrinsic
    from numba.extending import models, overload_method, register_model

    intrinsic: Any = numba_intrinsic

    class RowRng(types.Type):  # type: ignore[misc,unused-ignore]  # numba is Any
        """The numba type of an `Rng`: the position of a row's counter, and its key."""

        def __init__(self) -> None:
            super().__init__(name="envkit.Rng")

    rng_type = RowRng()

    @register_model(RowRng)
    class _Model(models.StructModel):  # type: ignore[misc,unused-ignore]
        def __init__(self, manager: Any, kind: Any) -> None:
            counter = types.CPointer(types.uint64)
            super().__init__(
                manager, kind, [("counter", counter), ("key", types.uint64)]
            )

    def opened(context: Any, builder: Any, value: Any = None) -> Any:
        return cgutils.create_struct_proxy(rng_type)(context, builder, value=value)

    def rng_of(typing: Any, positions: Any, keys: Any, row: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            arrays = [
                context.make_array(signature.args[at])(context, builder, args[at])
                for at in (0, 1)
            ]
            rng = opened(context, builder)
            rng.counter = builder.gep(arrays[0].data, [args[2]])
            rng.key = builder.load(builder.gep(arrays[1].data, [args[2]]))
            return rng._getvalue()

        return rng_type(positions, keys, types.intp), generate

    def counter_of(typing: Any, rng: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.load(opened(context, builder, args[0]).counter)

        return types.uint64(rng), generate

    def key_of(typing: Any, rng: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return opened(context, builder, args[0]).key

        return types.uint64(rng), generate

    def move(typing: Any, rng: Any, counter: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            builder.store(args[1], opened(context, builder, args[0]).counter)
            return context.get_dummy_value()

        return types.void(rng, types.uint64), generate

    draw = compiled(drawn)
    make_rng = intrinsic(rng_of)
    read_counter, read_key = intrinsic(counter_of), intrinsic(key_of)
    write_counter = intrinsic(move)

    method: Any = functools.partial(overload_method, RowRng)

    def random(self: Any) -> Any:
        counter, share = draw(read_counter(self), read_key(self))
        write_counter(self, counter)
        return share

    random.__annotations__.clear()
    method("random")(lambda self: random)
    method("integers")(lambda self, low, high: _bare(Rng.integers))
    method("uniform")(lambda self, low, high: _bare(Rng.uniform))
    method("normal")(lambda self: _bare(Rng.normal))
    method("shuffle")(lambda self, array: _bare(Rng.shuffle))
    return make_rng


def _bare(method: Any) -> FunctionType:
    """Returns a method without annotations; numba would see them as a difference."""
    return FunctionType(method.__code__, method.__globals__, method.__name__)
