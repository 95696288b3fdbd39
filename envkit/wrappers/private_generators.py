"""Gives one environment its own states of the global random generators.

The functions of the modules `random` and `numpy.random` draw from one generator each,
which the whole process shares. Libraries hold those functions (`from random import
randint`), so the generator itself must stay, and its state is exchanged instead.

`random.getstate()` and `np.random.get_state()` build a tuple or an array of 624
numbers, far more than a call of a small game costs. Both states are 2,500 bytes in C
structs, which can be copied in a tenth of a microsecond. The addresses are not assumed:
`_python_memory` and `_numpy_memory` try them on generators of their own when they are
first needed, and return `None` where anything differs. Then the slow functions do it.
"""

from __future__ import annotations

import _random
import ctypes
import functools
import os
import random
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np

from envkit.extend import describe, listed

__all__ = ["GENERATORS", "PrivateGenerators", "checked_generators"]

Result = TypeVar("Result")

# 624 words of 32 bits and a position, in the structs of Python and of NumPy.
_WORDS = 624
_BYTES = 4 * (_WORDS + 1)
# A flag of 32 bits, padding, and a double: NumPy's second normal number.
_GAUSS_BYTES = 16


class _State(Protocol):
    """An environment's state of one global generator."""

    def install(self) -> None:
        """Keeps the state outside, and puts this one in its place."""

    def remove(self, *, keep: bool) -> None:
        """Puts the state from outside back, and keeps this one, if that is wanted."""

    def seed(self, seed: int) -> None:
        """Sets the state that is not installed."""

    def get(self) -> Any:
        """Returns the state, as plain data."""

    def set(self, state: Any) -> None:
        """Sets it to what `get` returned."""


class _Region:
    """A piece of memory that belongs to a global generator, and its two contents."""

    __slots__ = ("live", "mine", "outside")

    def __init__(self, live: memoryview) -> None:
        self.live = live
        self.mine = memoryview(bytearray(len(live)))
        self.outside = memoryview(bytearray(len(live)))


class _CopiedPython:
    """Python's generator, by copying its memory."""

    def __init__(self, memory: Callable[[random.Random], memoryview]) -> None:
        self._memory = memory
        self._words = _Region(memory(_PYTHONS))
        # `gauss` makes two numbers at once, and keeps one here.
        self._gauss: float | None = None
        self._outside_gauss: float | None = None
        self._is_in = False

    def install(self) -> None:
        words = self._words
        words.outside[:] = words.live
        self._outside_gauss = _PYTHONS.gauss_next
        self._is_in = True
        words.live[:] = words.mine
        _PYTHONS.gauss_next = self._gauss

    def remove(self, *, keep: bool) -> None:
        if not self._is_in:
            return
        words = self._words
        if keep:
            words.mine[:] = words.live
            self._gauss = _PYTHONS.gauss_next
        words.live[:] = words.outside
        _PYTHONS.gauss_next = self._outside_gauss
        self._is_in = False

    def seed(self, seed: int) -> None:
        self._words.mine[:] = self._memory(random.Random(seed))
        self._gauss = None

    def get(self) -> Any:
        return _of_python(self._twin().getstate())

    def _twin(self) -> Any:
        twin: Any = random.Random(0)
        self._memory(twin)[:] = self._words.live if self._is_in else self._words.mine
        twin.gauss_next = _PYTHONS.gauss_next if self._is_in else self._gauss
        return twin

    def set(self, state: Any) -> None:
        twin: Any = random.Random(0)
        twin.setstate(_to_python(state))
        if self._is_in:
            self._words.live[:] = self._memory(twin)
            _PYTHONS.gauss_next = twin.gauss_next
        else:
            self._words.mine[:] = self._memory(twin)
            self._gauss = twin.gauss_next


class _Exchanged:
    """A generator whose state can only be read and written as a whole."""

    def __init__(
        self,
        read: Callable[[], Any],
        write: Callable[[Any], object],
        made: Callable[[int], Any],
        *,
        to_plain: Callable[[Any], Any] = lambda state: state,
        from_plain: Callable[[Any], Any] = lambda state: state,
    ) -> None:
        """Takes what reads and writes a state, and makes one from a seed."""
        self._read, self._write, self._made = read, write, made
        self._to_plain, self._from_plain = to_plain, from_plain
        self._mine: Any = None
        self._outside: Any = None
        self._is_in = False

    def install(self) -> None:
        self._outside = self._read()
        self._is_in = True
        self._write(self._mine)

    def remove(self, *, keep: bool) -> None:
        if not self._is_in:
            return
        if keep:
            self._mine = self._read()
        self._write(self._outside)
        self._is_in = False

    def seed(self, seed: int) -> None:
        self._mine = self._made(seed)

    def get(self) -> Any:
        return self._to_plain(self._read() if self._is_in else self._mine)

    def set(self, state: Any) -> None:
        state = self._from_plain(state)
        if self._is_in:
            self._write(state)
        else:
            self._mine = state


class _CopiedNumPy:
    """NumPy's generator, by copying its memory."""

    def __init__(self, gauss_offset: int) -> None:
        self._offset = gauss_offset
        self._generator = _mt19937_of(_NUMPYS)
        self._regions = [
            _Region(memory) for memory in _numpy_views(_NUMPYS, gauss_offset)
        ]
        self._is_in = False

    def install(self) -> None:
        if _NUMPYS._bit_generator is not self._generator:
            self._follow()
        for region in self._regions:
            region.outside[:] = region.live
        self._is_in = True
        for region in self._regions:
            region.live[:] = region.mine

    def _follow(self) -> None:
        """Takes up a generator that somebody has put in the place of NumPy's."""
        self._generator = _mt19937_of(_NUMPYS)
        views = _numpy_views(_NUMPYS, self._offset)
        for region, view in zip(self._regions, views, strict=True):
            region.live = view

    def remove(self, *, keep: bool) -> None:
        if not self._is_in:
            return
        self._is_in = False
        is_replaced = _NUMPYS._bit_generator is not self._generator
        if is_replaced:
            _SET_BIT_GENERATOR(self._generator)
        for region in self._regions:
            if keep:
                region.mine[:] = region.live
            region.live[:] = region.outside
        if is_replaced:
            raise RuntimeError(
                "The environment called np.random.set_bit_generator(), which replaces "
                "the generator of the whole process. PrivateRandomness gives each "
                "environment a state of NumPy's own generator only. It was put back."
            )

    def seed(self, seed: int) -> None:
        self._take(np.random.RandomState(np.random.MT19937(seed)))

    def _take(self, twin: Any) -> None:
        for region, view in zip(
            self._regions, _numpy_views(twin, self._offset), strict=True
        ):
            (region.live if self._is_in else region.mine)[:] = view

    def get(self) -> Any:
        twin = np.random.RandomState(0)
        for region, view in zip(
            self._regions, _numpy_views(twin, self._offset), strict=True
        ):
            view[:] = region.live if self._is_in else region.mine
        return _of_numpy(twin.get_state(legacy=False))

    def set(self, state: Any) -> None:
        twin = np.random.RandomState(0)
        twin.set_state(_to_numpy(state))
        self._take(twin)


# The objects behind the functions of `random` and `np.random`.
_PYTHONS: Any = random._inst
_NUMPYS: Any = np.random.mtrand._rand
# The stubs leave it out.
_SET_BIT_GENERATOR: Any = vars(np.random)["set_bit_generator"]


def _of_python(state: Any) -> Any:
    version, numbers, gauss = state
    return version, np.array(numbers, np.uint32), gauss


def _to_python(state: Any) -> Any:
    version, numbers, gauss = state
    return version, tuple(int(number) for number in numbers), gauss


def _of_numpy(state: Any) -> Any:
    inner = state["state"]
    numbers = np.array([*inner["key"], inner["pos"]], np.uint32)
    return numbers, int(state["has_gauss"]), float(state["gauss"])


def _to_numpy(state: Any) -> Any:
    numbers, has_gauss, gauss = state
    return {
        "bit_generator": "MT19937",
        "state": {
            "key": np.array(numbers[:_WORDS], np.uint32),
            "pos": int(numbers[_WORDS]),
        },
        "has_gauss": int(has_gauss),
        "gauss": float(gauss),
    }


def _memory_at(address: int, size: int) -> memoryview:
    return memoryview((ctypes.c_ubyte * size).from_address(address)).cast("B")


def _mt19937_of(numpys: Any) -> Any:
    """Returns the bit generator of a `RandomState`, if it is of NumPy's usual kind."""
    generator = numpys._bit_generator
    if type(generator) is not np.random.MT19937:
        raise RuntimeError(
            "The functions of np.random draw from a "
            f"{type(generator).__name__}, because np.random.set_bit_generator() was "
            "called. PrivateRandomness needs NumPy's own MT19937: put it back, or pass "
            'generators=("random",).'
        )
    return generator


def _numpy_views(numpys: Any, gauss_offset: int) -> list[memoryview]:
    """Returns the memory of a `RandomState`: numbers and position, kept normal."""
    address = _mt19937_of(numpys).ctypes.state_address
    return [
        _memory_at(address, _BYTES),
        _memory_at(id(numpys) + gauss_offset, _GAUSS_BYTES),
    ]


def _may_copy() -> bool:
    """Returns True if objects' memory may be copied: they stay where they are."""
    # Without the GIL, another thread could draw from the generator meanwhile.
    has_gil: Callable[[], bool] = getattr(sys, "_is_gil_enabled", lambda: True)
    return sys.implementation.name == "cpython" and has_gil()


@functools.cache
def _python_memory() -> Callable[[random.Random], memoryview] | None:
    """Returns what gives the memory of a `random.Random`; `None` if it is unknown."""
    start = object.__basicsize__
    if not _may_copy() or _random.Random.__basicsize__ < start + _BYTES:
        return None

    def memory(generator: random.Random) -> memoryview:
        return _memory_at(id(generator) + start, _BYTES)

    one, other = random.Random(7), random.Random(8)
    for _ in range(3):
        one.random()
    words = memory(one).cast("I").tolist()
    if (*words[1:], words[0]) != one.getstate()[1]:
        return None
    memory(other)[:] = memory(one)
    is_copied = other.getstate() == one.getstate() and other.random() == one.random()
    return memory if is_copied else None


@functools.cache
def _numpy_gauss_offset() -> int | None:
    """Returns where a `RandomState` keeps a normal number; `None` if it is unknown."""
    if not _may_copy():
        return None
    one: Any = np.random.RandomState(7)
    one.standard_normal()  # It makes two numbers, and keeps one.
    state = one.get_state(legacy=False)
    size = type(one).__basicsize__
    inside = bytes(_memory_at(id(one), size))
    offset = inside.find(np.float64(state["gauss"]).tobytes()) - 8
    if offset < object.__basicsize__ or offset + _GAUSS_BYTES > size:
        return None
    words, gauss = _numpy_views(one, offset)
    numbers = words.cast("I").tolist()
    if numbers != [*state["state"]["key"].tolist(), state["state"]["pos"]]:
        return None
    other: Any = np.random.RandomState(8)
    empty = bytes(_numpy_views(other, offset)[1])
    for theirs, own in zip(_numpy_views(other, offset), (words, gauss), strict=True):
        theirs[:] = own
    if not _same(other.get_state(legacy=False), state):
        return None
    gauss[:] = empty
    if one.get_state(legacy=False)["has_gauss"]:
        return None
    return offset


def _same(one: Any, other: Any) -> bool:
    return all(
        np.array_equal(mine, theirs)
        for mine, theirs in zip(_of_numpy(one), _of_numpy(other), strict=True)
    )


def _python() -> _State:
    memory = _python_memory()
    if memory is not None:
        return _CopiedPython(memory)
    return _Exchanged(
        random.getstate,
        random.setstate,
        lambda seed: random.Random(seed).getstate(),
        to_plain=_of_python,
        from_plain=_to_python,
    )


def _numpy() -> _State:
    _mt19937_of(_NUMPYS)
    offset = _numpy_gauss_offset()
    if offset is not None:
        return _CopiedNumPy(offset)
    return _Exchanged(
        functools.partial(np.random.get_state, legacy=False),
        np.random.set_state,
        lambda seed: np.random.RandomState(np.random.MT19937(seed)).get_state(
            legacy=False
        ),
        to_plain=_of_numpy,
        from_plain=_to_numpy,
    )


def _torch() -> _State:
    import torch

    return _Exchanged(
        torch.get_rng_state,
        torch.set_rng_state,
        lambda seed: torch.Generator().manual_seed(seed % 2**63).get_state(),
        to_plain=lambda state: state.numpy().copy(),
        from_plain=lambda state: torch.from_numpy(np.array(state)),
    )


_KINDS: dict[str, Callable[[], _State]] = {
    "random": _python,
    "numpy": _numpy,
    "torch": _torch,
}
#: The names of the generators that can be private.
GENERATORS = tuple(_KINDS)


class _Turns:
    """The lock of all calls with private generators, in this process."""

    def __init__(self) -> None:
        self.lock = threading.RLock()

    def renew(self) -> None:
        # A fork has only one thread, and others may have held the lock.
        self.lock = threading.RLock()


_TURNS = _Turns()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_TURNS.renew)


class PrivateGenerators:
    """Holds one environment's states of global generators, and calls things with them.

    The generators belong to the process, so calls of several threads wait for each
    other.

    Attributes:
        names: The names of the generators.
    """

    def __init__(self, names: Sequence[str]) -> None:
        """Begins with fresh entropy."""
        self.names = checked_generators(names)
        self._states = [_KINDS[name]() for name in self.names]
        self._depth = 0
        self.seed(None)

    def seed(self, seed: int | None) -> None:
        """Seeds every generator; `None` uses fresh entropy."""
        for name, state in zip(self.names, self._states, strict=True):
            # A key of its own, so a stream does not depend on the other generators.
            key = (GENERATORS.index(name),)
            sequence = np.random.SeedSequence(seed, spawn_key=key)
            low, high = sequence.generate_state(2, np.uint64).tolist()
            state.seed(high << 64 | low)

    def call(
        self, function: Callable[..., Result], *args: Any, keep: bool = True
    ) -> Result:
        """Calls a function that draws from these states.

        Args:
            function: The function.
            *args: Its arguments.
            keep: Whether the states keep where the function leaves them.
        """
        # Hot: called once per step.
        with _TURNS.lock:
            if self._depth:  # The environment calls its own wrapper.
                return function(*args)
            try:
                self._depth = 1
                for state in self._states:
                    state.install()
                return function(*args)
            finally:
                self._depth = 0
                for state in self._states:
                    state.remove(keep=keep)

    def around(self, function: Callable[..., Result]) -> Callable[..., Result]:
        """Returns a function that calls another with these states."""
        return functools.partial(self.call, function)

    def save(self) -> dict[str, Any]:
        """Returns the states as plain data."""
        pairs = zip(self.names, self._states, strict=True)
        return {name: state.get() for name, state in pairs}

    def restore(self, saved: dict[str, Any]) -> None:
        """Restores what `save` returned."""
        for name, state in zip(self.names, self._states, strict=True):
            state.set(saved[name])

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (self.names, self.save())


def _restored(names: Sequence[str], saved: dict[str, Any]) -> PrivateGenerators:
    made = PrivateGenerators(names)
    made.restore(saved)
    return made


def checked_generators(names: Any) -> tuple[str, ...]:
    """Returns the names of generators, or raises."""
    known = listed(map(repr, GENERATORS))
    if isinstance(names, str) or not isinstance(names, Sequence):
        raise TypeError(
            f"generators must be a tuple of names among {known}, got {describe(names)}."
        )
    unknown = [name for name in names if name not in _KINDS]
    if unknown or not names:
        got = repr(unknown[0]) if unknown else "none"
        raise ValueError(f"generators must be names among {known}, got {got}.")
    return tuple(dict.fromkeys(names))
