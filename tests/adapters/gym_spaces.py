"""Hypothesis strategies for Gymnasium's spaces and their members."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tests import strategies

LETTERS = "abcXYZ 019_é"

# Before 1.4 Gymnasium draws letters in the order of their hashes, which another process
# has otherwise, and none that is named twice; it sorts the keys of batches; it draws
# graphs that it does not contain if their choices begin elsewhere than at 0; and it
# counts episodes otherwise that somebody resets by himself.
IS_SETTLED = [int(part) for part in gymnasium.__version__.split(".")[:2]] >= [1, 4]
WANTS_SETTLED = pytest.mark.skipif(
    not IS_SETTLED, reason="Gymnasium does that otherwise before 1.4"
)


class Interval(spaces.Space):
    """A space of somebody else's: pairs of numbers, the smaller one first."""

    def __init__(self, most: int):
        self.most = most
        super().__init__()

    def sample(self, mask: Any = None, probability: Any = None) -> tuple[int, int]:
        low, high = sorted(self.np_random.integers(0, self.most + 1, 2).tolist())
        return low, high

    def contains(self, x: Any) -> bool:
        return isinstance(x, tuple) and len(x) == 2 and 0 <= x[0] <= x[1] <= self.most

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Interval) and self.most == other.most

    def __repr__(self) -> str:
        return f"Interval({self.most})"


@st.composite
def boxes(draw: st.DrawFn) -> spaces.Box:
    """Draws a box of any dtype, each element with bounds of its own or none."""
    dtype = draw(strategies.dtypes("biuf"))
    shape = draw(strategies.shapes())
    if dtype.kind != "f":
        # Gymnasium's samples of shape () would be numbers, which are no members.
        shape = shape or (1,)
    if dtype.kind == "b":
        low = draw(hnp.arrays(bool, shape))
        return spaces.Box(low, low | draw(hnp.arrays(bool, shape)), shape, dtype)
    low = -100 if dtype.kind != "u" else 0
    elements = st.integers(low, 100) if dtype.kind in "iu" else st.floats(-100, 100)
    bounds = hnp.arrays(np.float64, shape, elements=elements, fill=elements)
    first, second = draw(bounds).astype(dtype), draw(bounds).astype(dtype)
    low, high = np.minimum(first, second), np.maximum(first, second)
    if dtype.kind == "f":
        open_ends = hnp.arrays(bool, shape, elements=st.booleans(), fill=st.booleans())
        low = np.where(draw(open_ends), -np.inf, low).astype(dtype)
        high = np.where(draw(open_ends), np.inf, high).astype(dtype)
        high = np.where(draw(open_ends), np.finfo(dtype).max, high)
    # Arrays of these would be floats, and Gymnasium cannot sample batches of int64.
    if dtype.kind == "i" and dtype.itemsize < 8 and draw(st.booleans()):
        low, high = draw(
            st.sampled_from([(-np.inf, np.inf), (-3, np.inf), (-np.inf, 3)])
        )
    return spaces.Box(low, high, shape, dtype)


@st.composite
def discretes(draw: st.DrawFn) -> spaces.Discrete:
    """Draws a choice: any integer dtype, any beginning."""
    dtype = draw(strategies.dtypes("iu"))
    info = np.iinfo(dtype)
    start = draw(st.integers(int(info.min), int(info.max) - 1) | st.just(0))
    most = min(int(info.max), int(info.max) - start)
    count = draw(st.integers(1, most) | st.integers(1, min(most, 5)))
    return spaces.Discrete(count, start=start, dtype=dtype)


@st.composite
def multi_discretes(draw: st.DrawFn) -> spaces.MultiDiscrete:
    """Draws an array of choices."""
    dtype = draw(strategies.dtypes("iu"))
    shape = draw(hnp.array_shapes(max_dims=3, max_side=3))
    lowest = 0 if dtype.kind == "u" else -20
    counts = draw(hnp.arrays(dtype, shape, elements=st.integers(1, 20)))
    starts = draw(hnp.arrays(dtype, shape, elements=st.integers(lowest, 20)))
    return spaces.MultiDiscrete(counts, dtype, start=starts)


def multi_binaries() -> st.SearchStrategy[spaces.MultiBinary]:
    """Draws an array of zeros and ones."""
    shapes = hnp.array_shapes(max_dims=3, max_side=3)
    return (st.integers(1, 5) | shapes).map(spaces.MultiBinary)


@st.composite
def texts(draw: st.DrawFn) -> spaces.Text:
    """Draws text of some lengths and letters."""
    least = draw(st.integers(0, 3))
    most = draw(st.integers(least, 6))
    letters = draw(st.text(LETTERS, min_size=1))
    if not IS_SETTLED:
        letters = "".join(dict.fromkeys(letters))
    return spaces.Text(most, min_length=least, charset=letters)


def array_leaves() -> st.SearchStrategy[Any]:
    """Draws a space that is one array."""
    return boxes() | discretes() | multi_discretes() | multi_binaries() | texts()


@st.composite
def graphs(draw: st.DrawFn) -> spaces.Graph:
    """Draws a graph, whose edges may have no values."""
    nodes = draw(boxes().filter(_is_row_of_numbers) | small_discretes())
    edges = draw(st.none() | boxes().filter(_is_row_of_numbers) | small_discretes())
    return spaces.Graph(nodes, edges)


def small_discretes() -> st.SearchStrategy[spaces.Discrete]:
    """Draws a choice of few."""
    starts = st.integers(-2, 2) if IS_SETTLED else st.just(0)
    return st.builds(spaces.Discrete, st.integers(1, 4), start=starts)


def _is_row_of_numbers(space: spaces.Box) -> bool:
    return space.dtype.kind != "b" and space.shape != ()


@st.composite
def sequences(draw: st.DrawFn) -> spaces.Sequence:
    """Draws sequences, stacked or not."""
    return spaces.Sequence(
        draw(small_discretes() | boxes().filter(_is_row_of_numbers)),
        stack=draw(st.booleans()),
    )


def object_leaves() -> st.SearchStrategy[Any]:
    """Draws a space whose members are no arrays."""
    return graphs() | sequences() | st.builds(Interval, st.integers(0, 9))


def gym_spaces(
    leaves: st.SearchStrategy[Any] | None = None, *, max_leaves: int = 5
) -> st.SearchStrategy[Any]:
    """Draws any space of Gymnasium's: dictionaries, tuples and unions of leaves."""
    leaves = array_leaves() | object_leaves() if leaves is None else leaves
    return st.recursive(
        leaves,
        lambda children: (
            st.lists(children, max_size=3).map(spaces.Tuple)
            | st.lists(children, min_size=1, max_size=3).map(spaces.OneOf)
            | st.dictionaries(st.sampled_from("bdac"), children, max_size=3).map(
                lambda drawn: spaces.Dict(list(drawn.items()))
            )
        ),
        max_leaves=max_leaves,
    )


def members(space: Any) -> st.SearchStrategy[Any]:
    """Draws a member of a space."""

    def sample(seed: int) -> Any:
        space.seed(seed)
        return space.sample()

    return st.integers(0, 2**31 - 1).map(sample)


def same(first: Any, second: Any) -> bool:
    """Says whether two members are equal, of the same types all the way down."""
    if type(first) is not type(second):
        return False
    if isinstance(first, np.ndarray):
        return first.dtype == second.dtype and np.array_equal(first, second)
    if isinstance(first, dict):
        return list(first) == list(second) and all(
            same(first[key], second[key]) for key in first
        )
    if isinstance(first, tuple | list):
        return len(first) == len(second) and all(map(same, first, second))
    return bool(first == second)
