"""The Hypothesis strategies of all tests: specs, nests of them, values that fit.

Whatever is added to `specs()` reaches every property test.
"""

from __future__ import annotations

import collections
import dataclasses
import types
from collections.abc import Callable, Iterator
from typing import Any

import attrs
import numpy as np
import wrapt
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from envkit.parallel.slab_layout import SlabLayout
from envkit.specs import ArraySpec, BoundedArraySpec
from envkit.specs.environment_spec import EnvironmentSpec

INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
FLOATS = ("float16", "float32", "float64")
TEXTS = ("<U1", "<U7", "S1", "S5")

Pair = collections.namedtuple("Pair", ["second", "first"])
Empty = collections.namedtuple("Empty", [])


@attrs.define
class Pose:
    """A container that only dm-tree can rebuild; its fields are not in order."""

    y: Any
    x: Any


# dm-tree remembers for each type whether it is a mapping, and a proxy's type does not
# tell. One type of proxy for each type of container keeps it a reliable witness.
class ProxiedDict(wrapt.ObjectProxy):
    """Stands for a dictionary."""


class ProxiedList(wrapt.ObjectProxy):
    """Stands for a list."""


class ProxiedTuple(wrapt.ObjectProxy):
    """Stands for a tuple."""


def dtypes(
    kinds: str = "biufUS", *, any_byte_order: bool = False
) -> st.SearchStrategy[np.dtype[Any]]:
    """Draws a dtype of one of NumPy's kinds, in native byte order unless allowed."""
    names = [
        name
        for name in ("bool", *INTEGERS, *FLOATS, *TEXTS)
        if np.dtype(name).kind in kinds
    ]
    native = st.sampled_from(names).map(np.dtype)
    if not any_byte_order:
        return native
    return st.tuples(native, st.sampled_from("=<>")).map(
        lambda drawn: drawn[0].newbyteorder(drawn[1])
    )


def shapes(max_dims: int = 3, max_side: int = 3) -> st.SearchStrategy[tuple[int, ...]]:
    """Draws a shape; scalars and arrays without elements among them."""
    return hnp.array_shapes(
        min_dims=0, max_dims=max_dims, min_side=0, max_side=max_side
    )


def outer_dims() -> st.SearchStrategy[tuple[int, ...]]:
    """Draws the dimensions of a batch, from none to two."""
    return hnp.array_shapes(min_dims=0, max_dims=2, min_side=0, max_side=3)


def names() -> st.SearchStrategy[str | None]:
    """Draws the name of a spec."""
    return st.none() | st.sampled_from(["camera", "joint angles", ""])


@st.composite
def array_specs(
    draw: st.DrawFn,
    kinds: str = "biufUS",
    *,
    spec_shapes: st.SearchStrategy[tuple[int, ...]] | None = None,
    any_byte_order: bool = False,
) -> ArraySpec:
    """Draws a spec without bounds."""
    return ArraySpec(
        draw(shapes() if spec_shapes is None else spec_shapes),
        draw(dtypes(kinds, any_byte_order=any_byte_order)),
        draw(names()),
    )


@st.composite
def bounded_specs(
    draw: st.DrawFn,
    kinds: str = "iuf",
    *,
    spec_shapes: st.SearchStrategy[tuple[int, ...]] | None = None,
    any_byte_order: bool = False,
) -> BoundedArraySpec:
    """Draws a spec with bounds: none, one, both; for all elements, some or each."""
    shape = draw(shapes() if spec_shapes is None else spec_shapes)
    dtype = draw(dtypes(kinds, any_byte_order=any_byte_order))
    minimum = draw(st.none() | bounds(shape, dtype))
    maximum = draw(st.none() | bounds(shape, dtype))
    if minimum is not None and maximum is not None:
        # A bound must not cross the other anywhere, so both take the common shape.
        minimum, maximum = np.minimum(minimum, maximum), np.maximum(minimum, maximum)
    return BoundedArraySpec(shape, dtype, minimum, maximum, draw(names()))


@st.composite
def bounds(draw: st.DrawFn, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    """Draws an array of finite numbers that broadcasts to `shape`."""
    kept = draw(st.integers(0, len(shape)))
    partial = tuple(
        draw(st.sampled_from(sorted({1, size}))) for size in shape[len(shape) - kept :]
    )
    return draw(
        hnp.arrays(dtype, partial, elements=_numbers(dtype), fill=_numbers(dtype))
    )


def _numbers(dtype: np.dtype[Any]) -> st.SearchStrategy[Any]:
    if dtype.kind == "f":
        return st.floats(
            allow_nan=False, allow_infinity=False, width=8 * dtype.itemsize
        )
    info = np.iinfo(dtype)
    return st.integers(int(info.min), int(info.max))


def specs(kinds: str = "biufUS", **options: Any) -> st.SearchStrategy[ArraySpec]:
    """Draws a spec with or without bounds."""
    numeric = "".join(kind for kind in kinds if kind in "iuf")
    plain = array_specs(kinds, **options)
    return plain | bounded_specs(numeric, **options) if numeric else plain


def keys() -> st.SearchStrategy[Any]:
    """Draws the kind of keys of one dictionary: all text or all integers."""
    return st.sampled_from([st.text("abé' ", max_size=3), st.integers(-2, 12)])


def _dicts(children: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[Any, Any]]:
    return keys().flatmap(lambda key: st.dictionaries(key, children, max_size=3))


def _plain_containers(children: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        _dicts(children),
        st.lists(children, max_size=3),
        st.lists(children, max_size=3).map(tuple),
        st.tuples(children, children).map(Pair._make),
        st.just(Empty()),
    )


def _all_containers(children: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        _plain_containers(children),
        _dicts(children).map(collections.OrderedDict),
        _dicts(children).map(lambda items: collections.defaultdict(list, items)),
        _dicts(children).map(types.MappingProxyType),
        st.tuples(children, children).map(lambda pair: Pose(*pair)),
        st.lists(children, max_size=3).map(ProxiedList),
        st.lists(children, max_size=3).map(tuple).map(ProxiedTuple),
    )


@st.composite
def nests(
    draw: st.DrawFn,
    leaves: st.SearchStrategy[Any] | None = None,
    *,
    max_depth: int = 4,
    plain: bool = True,
) -> Any:
    """Draws a nest of any leaves (integers, unless given), possibly a bare leaf.

    Plain nests are of dictionaries, lists, tuples and namedtuples; the others have
    everything that dm-tree can take apart and put together again.
    """
    containers = _plain_containers if plain else _all_containers
    leaves = st.integers(0, 99) if leaves is None else leaves
    nested = leaves
    for _ in range(draw(st.integers(1, max_depth))):
        nested = containers(nested) | leaves
    return draw(nested)


# What a row of a slab can hold: all that has a size and is no object.
SLAB_DTYPES = (
    "bool",
    *INTEGERS,
    *FLOATS,
    "complex64",
    "complex128",
    "datetime64[ns]",
    "datetime64[D]",
    "timedelta64[s]",
    *TEXTS,
)


def slab_dtypes() -> st.SearchStrategy[np.dtype[Any]]:
    """Draws a dtype of which a slab can hold arrays, in either byte order."""
    return st.tuples(
        st.sampled_from(SLAB_DTYPES).map(np.dtype), st.sampled_from("=<>")
    ).map(lambda drawn: drawn[0].newbyteorder(drawn[1]))


def slab_leaf_specs() -> st.SearchStrategy[ArraySpec]:
    """Draws a spec of arrays that a slab can hold, with bounds or without."""
    plain = st.builds(ArraySpec, shapes(), slab_dtypes(), names())
    return plain | bounded_specs(any_byte_order=True)


def slab_specs(*, max_depth: int = 4) -> st.SearchStrategy[Any]:
    """Draws a nest of specs that a slab can hold; it may have no leaves at all."""
    return nests(slab_leaf_specs(), max_depth=max_depth)


def environment_specs(*, max_depth: int = 2) -> st.SearchStrategy[EnvironmentSpec]:
    """Draws the specs of an environment whose answers a slab can hold."""
    numbers = st.builds(
        ArraySpec,
        st.sampled_from([(), (), (2,)]),
        st.sampled_from(["float32", "float64", "int32"]).map(np.dtype),
    )
    return st.builds(
        EnvironmentSpec,
        observation=slab_specs(max_depth=max_depth),
        action=slab_specs(max_depth=max_depth),
        reward=numbers | st.fixed_dictionaries({"a": numbers, "b": numbers}),
        discount=numbers,
    )


def slab_layouts(*, max_workers: int = 3) -> st.SearchStrategy[SlabLayout]:
    """Draws a layout of a few rows, dealt to workers."""

    def dealt(sizes: list[int]) -> tuple[tuple[int, int], ...]:
        stops = np.cumsum(sizes).tolist()
        return tuple(zip([0, *stops], stops, strict=False))

    blocks = st.lists(st.integers(1, 3), min_size=1, max_size=max_workers).map(dealt)
    return st.builds(SlabLayout, environment_specs(), blocks)


def spec_nests(
    leaves: st.SearchStrategy[ArraySpec] | None = None, *, max_depth: int = 3
) -> st.SearchStrategy[Any]:
    """Draws a nest of specs."""
    return nests(specs() if leaves is None else leaves, max_depth=max_depth)


@dataclasses.dataclass(frozen=True)
class Place:
    """A leaf or a container in a nest, found without envkit's help.

    Attributes:
        steps: The keys, indices and field names that lead there.
        path: What a message should call it.
        value: What is there.
    """

    steps: tuple[Any, ...]
    path: str
    value: Any


def places(nest: Any, steps: tuple[Any, ...] = (), path: str = "") -> Iterator[Place]:
    """Yields every container and every leaf of a plain nest."""
    yield Place(steps, path, nest)
    if isinstance(nest, dict):
        for key, child in nest.items():
            yield from places(child, (*steps, key), f"{path}[{key!r}]")
    elif isinstance(nest, tuple) and hasattr(nest, "_fields"):
        for name in nest._fields:
            inner = f"{path}.{name}" if path else name
            yield from places(getattr(nest, name), (*steps, name), inner)
    elif isinstance(nest, list | tuple):
        for index, child in enumerate(nest):
            yield from places(child, (*steps, index), f"{path}[{index}]")


def changed_at(nest: Any, steps: tuple[Any, ...], change: Callable[[Any], Any]) -> Any:
    """Copies a plain nest with one place changed."""
    if not steps:
        return change(nest)
    step, *rest = steps
    if isinstance(nest, dict):
        return {
            key: changed_at(child, tuple(rest), change) if key == step else child
            for key, child in nest.items()
        }
    if isinstance(step, str):
        inner = changed_at(getattr(nest, step), tuple(rest), change)
        return nest._replace(**{step: inner})
    children = list(nest)
    children[step] = changed_at(children[step], tuple(rest), change)
    return type(nest)(children)


def mapped(nest: Any, function: Callable[[Any], Any]) -> Any:
    """Copies a plain nest with the function applied to its leaves."""
    if isinstance(nest, dict):
        return {key: mapped(child, function) for key, child in nest.items()}
    if isinstance(nest, tuple) and hasattr(nest, "_fields"):
        return nest._make(mapped(child, function) for child in nest)
    if isinstance(nest, list | tuple):
        return type(nest)(mapped(child, function) for child in nest)
    return function(nest)


def leaves(nest: Any) -> list[Place]:
    """Lists the specs of a plain nest of specs."""
    return [place for place in places(nest) if isinstance(place.value, ArraySpec)]


def values(spec: Any, outer_dims: tuple[int, ...] = ()) -> st.SearchStrategy[Any]:
    """Draws a nest of arrays that fits a plain nest of specs."""
    return st.builds(
        lambda seed, fill: value_of(spec, seed, fill, outer_dims),
        st.integers(0, 2**32 - 1),
        st.sampled_from(["lowest", "highest", "random"]),
    )


def value_of(
    spec: Any, seed: int, fill: str = "random", outer_dims: tuple[int, ...] = ()
) -> Any:
    """Makes a nest of arrays that fits a plain nest of specs, from a seed.

    It is not made by `envkit.specs.sampling`, so that the two can witness for each
    other.
    """
    rng = np.random.default_rng(seed)
    return mapped(spec, lambda leaf: _array_of(leaf, rng, fill, outer_dims))


LAYOUTS = ("C", "Fortran", "strided", "reversed", "unaligned", "read-only")


def values_of(spec: Any) -> st.SearchStrategy[Any]:
    """Draws a nest of arrays that fits a nest of `slab_specs`.

    Their elements have any bits there can be, and the arrays lie in memory as arrays
    of users do. To compare them, compare their bytes: a NaN is not equal to itself.
    """
    return st.builds(
        lambda seed: _slab_value_of(spec, np.random.default_rng(seed)),
        st.integers(0, 2**32 - 1),
    )


def slab_value_of(spec: Any, *seed: int) -> Any:
    """Makes one of `values_of(spec)` from a seed, where many are needed quickly."""
    return _slab_value_of(spec, np.random.default_rng(seed))


def _slab_value_of(spec: Any, rng: np.random.Generator) -> Any:
    def make(leaf: ArraySpec) -> Any:
        bounded = isinstance(leaf, BoundedArraySpec)
        fill = str(rng.choice(["lowest", "highest", "random"]))
        array = _array_of(leaf, rng, fill, ()) if bounded else _any_array(leaf, rng)
        return laid_out(array, str(rng.choice(LAYOUTS)))

    return mapped(spec, make)


def any_array(spec: ArraySpec, seed: int) -> Any:
    """Makes an array that fits a spec without bounds, out of any bits, from a seed."""
    return _any_array(spec, np.random.default_rng(seed))


def _any_array(spec: ArraySpec, rng: np.random.Generator) -> Any:
    """Makes an array out of any bits; those of text are letters, at least."""
    count = int(np.prod(spec.shape))
    if spec.dtype.kind == "b":
        return rng.integers(0, 2, spec.shape).astype(np.bool_)
    if spec.dtype.kind == "U":
        letters = list("aZ 7é\0λ字😀")
        width = spec.dtype.itemsize // 4
        words = ["".join(rng.choice(letters, width)) for _ in range(count)]
        return np.array(words, spec.dtype).reshape(spec.shape)
    raw = rng.bytes(count * spec.dtype.itemsize)
    return np.frombuffer(bytearray(raw), spec.dtype).reshape(spec.shape)


def laid_out(array: Any, layout: str) -> Any:
    """Copies an array to memory in one of `LAYOUTS`."""
    shape, dtype = array.shape, array.dtype
    if layout == "Fortran":
        return np.array(array, order="F")
    if layout == "unaligned":
        buffer = np.zeros(array.nbytes + 1, np.uint8)
        copy = np.ndarray(shape, dtype, buffer, offset=1)
    elif layout == "strided":
        # With something in between that must not get in.
        between = np.ones((2, *(2 * size for size in shape)), dtype)
        copy = between[(1, ..., *(slice(None, None, 2) for _ in shape))]
    elif layout == "reversed":
        copy = np.empty(shape, dtype)[(..., *(slice(None, None, -1) for _ in shape))]
    else:
        copy = np.empty(shape, dtype)
    copy[...] = array
    copy.setflags(write=layout != "read-only")
    return copy


def _array_of(
    spec: ArraySpec, rng: np.random.Generator, fill: str, outer_dims: tuple[int, ...]
) -> Any:
    shape = (*outer_dims, *spec.shape)
    array = np.empty(shape, spec.dtype)
    limits = _limits(spec, shape)
    for index in np.ndindex(*shape):
        share = {"lowest": 0.0, "highest": 1.0}.get(fill, rng.random())
        array[index] = _element(spec.dtype, share, limits, index)
    return array


def _limits(spec: ArraySpec, shape: tuple[int, ...]) -> tuple[Any, Any]:
    if spec.dtype.kind not in "iuf":
        return None, None
    bounded = BoundedArraySpec.from_spec(spec)
    return (
        np.broadcast_to(bounded.minimum, shape),
        np.broadcast_to(bounded.maximum, shape),
    )


def _element(
    dtype: np.dtype[Any], share: float, limits: tuple[Any, Any], index: tuple[int, ...]
) -> Any:
    if dtype.kind == "b":
        return share >= 0.5
    if dtype.kind in "US":
        return "x" * int(share * 4)
    low, high = (limit[index].item() for limit in limits)
    if dtype.kind == "f":
        # Half of each, because the difference of the two may be infinite.
        inside = 2.0 * (low / 2 * (1 - share) + high / 2 * share)
        return min(max(inside, low), high)
    return low + int((high - low) * int(share * 1024)) // 1024


def anything() -> st.SearchStrategy[Any]:
    """Draws a value that people may pass in place of an array, or an array."""
    numbers = st.one_of(
        st.booleans(),
        st.integers(),
        st.sampled_from([2**63 - 1, 2**63, 2**64 - 1, 2**64, -(2**63) - 1]),
        st.floats(),
        st.complex_numbers(),
        st.decimals(),
        st.fractions(),
    )
    any_dtype = st.one_of(
        dtypes(any_byte_order=True),
        st.sampled_from(["complex64", "datetime64[D]", "object"]).map(np.dtype),
    )
    arrays = any_dtype.flatmap(
        lambda dtype: (
            st.builds(np.zeros, shapes(), st.just(dtype))
            | shapes().map(lambda shape: np.full(shape, "7").astype(dtype))
            if dtype.kind not in "Mm"
            else st.builds(np.zeros, shapes(), st.just(dtype))
        )
    )
    scalars = arrays.filter(lambda array: array.size).map(
        lambda array: array.ravel()[0]
    )
    leaves = numbers | arrays | scalars | st.none() | st.text() | st.binary()
    others = st.sampled_from([{1, 2}, object(), np.float32, range(2), slice(2)])
    return st.one_of(leaves, nests(leaves, max_depth=2, plain=False), others)


@dataclasses.dataclass(frozen=True)
class Misfit:
    """A value with one thing wrong, and what there is to say about it.

    Attributes:
        spec: A nest of specs.
        value: A nest that would fit it but for one place.
        path: Where that is.
        expected: What the message must say that was expected.
        got: What the message must say that came; a part of the line.
        others: How many leaves are neither at that place nor below it.
    """

    spec: Any
    value: Any
    path: str
    expected: str
    got: str
    others: int


def misfits(
    nests_of_specs: st.SearchStrategy[Any] | None = None,
) -> st.SearchStrategy[Misfit]:
    """Draws a spec nest, a value that fits it, and spoils the value in one place."""
    drawn = spec_nests() if nests_of_specs is None else nests_of_specs
    return drawn.filter(_can_be_spoiled).flatmap(_misfits_of)


def _can_be_spoiled(spec: Any) -> bool:
    return bool(leaves(spec)) or any(
        isinstance(place.value, dict) for place in places(spec)
    )


@st.composite
def _misfits_of(draw: st.DrawFn, spec: Any) -> Misfit:
    value = draw(values(spec))
    spoilers = [
        (place, spoiler) for place in places(spec) for spoiler in _spoilers(place.value)
    ]
    place, spoiler = draw(st.sampled_from(spoilers))
    spoiled, got = spoiler(_at(value, place.steps))
    expected = (
        repr(place.value) if isinstance(place.value, ArraySpec) else "the structure {"
    )
    return Misfit(
        spec,
        changed_at(value, place.steps, lambda _: spoiled),
        place.path,
        expected,
        got,
        others=len(leaves(spec)) - len(leaves(place.value)),
    )


def _at(nest: Any, steps: tuple[Any, ...]) -> Any:
    found = []
    changed_at(nest, steps, found.append)
    return found[0]


Spoiler = Callable[[Any], tuple[Any, str]]


def _spoilers(spec: Any) -> list[Spoiler]:
    """Lists what can go wrong with the value of a spec, or with a dictionary."""
    if isinstance(spec, dict):
        extra: Any = 99 if spec and isinstance(next(iter(spec)), int) else "extra"
        spoilers: list[Spoiler] = [
            lambda value: ({**value, extra: np.zeros(2)}, f"a dict of {_n(value, 1)}")
        ]
        if spec:
            spoilers.append(
                lambda value: (
                    dict(list(value.items())[1:]),
                    f"a dict of {_n(value, -1)}",
                )
            )
        return spoilers
    if not isinstance(spec, ArraySpec):
        return []
    return [
        lambda value: (None, "None"),
        lambda value: (value.tolist(), "") if value.ndim else ([value], "a list of 1"),
        lambda value: (np.zeros(value.shape, _other(spec)), f"dtype {_other(spec)}"),
        lambda value: (value[None], f"array of shape {(1, *spec.shape)}"),
        *([_longer] if spec.shape else []),
        *_numeric_spoilers(spec),
    ]


def _n(items: Any, more: int) -> str:
    count = len(items) + more
    return f"{count} element" if count == 1 else f"{count} elements"


def _other(spec: ArraySpec) -> np.dtype[Any]:
    """Chooses a dtype that people confuse with the spec's."""
    if spec.dtype.kind == "f":
        return np.dtype("float32" if spec.dtype == np.float64 else "float64")
    return np.dtype("int32" if spec.dtype == np.int64 else "int64")


def _longer(value: Any) -> tuple[Any, str]:
    shape = (*value.shape[:-1], value.shape[-1] + 1)
    return np.zeros(shape, value.dtype), f"array of shape {shape}"


def _numeric_spoilers(spec: ArraySpec) -> list[Spoiler]:
    if not isinstance(spec, BoundedArraySpec) or 0 in spec.shape:
        return []
    spoilers: list[Spoiler] = []
    low, high = (
        np.broadcast_to(bound, spec.shape) for bound in (spec.minimum, spec.maximum)
    )
    lowest, highest = _limits_of(spec.dtype)
    shown = f"array of shape {spec.shape}, dtype {spec.dtype}"
    if (low > lowest).all():
        spoilers.append(lambda value: (np.full_like(value, lowest), shown))
    if (high < highest).all():
        spoilers.append(lambda value: (np.full_like(value, highest), shown))
    if spec.dtype.kind == "f":
        spoilers.append(lambda value: (np.full_like(value, np.nan), shown))
        spoilers.append(lambda value: (np.full_like(value, np.inf), shown))
    return spoilers


def _limits_of(dtype: np.dtype[Any]) -> tuple[Any, Any]:
    info: Any = np.finfo(dtype) if dtype.kind == "f" else np.iinfo(dtype)
    return info.min, info.max


def broken_nests(nest: Any) -> st.SearchStrategy[Any]:
    """Draws a plain nest that differs from `nest` in one container, or not at all."""

    @st.composite
    def draw_one(draw: st.DrawFn) -> Any:
        place = draw(st.sampled_from(list(places(nest))))
        change = draw(st.sampled_from(_CHANGES))
        return changed_at(nest, place.steps, change)

    return draw_one()


def _as_dict(value: Any) -> Any:
    return dict(enumerate(value)) if isinstance(value, list | tuple) else value


def _as_list(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _as_tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list | tuple) else value


def _as_ordered(value: Any) -> Any:
    return collections.OrderedDict(value) if isinstance(value, dict) else value


def _as_look_alike(value: Any) -> Any:
    """Makes a namedtuple of another class with the same name and fields."""
    if isinstance(value, Pair):
        return collections.namedtuple("Pair", value._fields)(*value)
    return value


def _as_other_pair(value: Any) -> Any:
    if isinstance(value, Pair):
        return collections.namedtuple("Couple", value._fields)(*value)
    return value


def _shorter(value: Any) -> Any:
    if type(value) in (list, tuple):
        return value[:-1]
    return dict(list(value.items())[:-1]) if type(value) is dict else value


_CHANGES: list[Callable[[Any], Any]] = [
    lambda value: value,
    lambda value: None,
    lambda value: [value],
    lambda value: {"key": value},
    lambda value: (),
    _as_dict,
    _as_list,
    _as_tuple,
    _as_ordered,
    _as_look_alike,
    _as_other_pair,
    _shorter,
]


def backend_actions(
    *, hangs: bool = True, interrupts: bool = True
) -> st.SearchStrategy[Any]:
    """Draws something that happens in a `FakeBackend`; `hangs` need timeouts."""
    from tests.parallel import fake_backend as fake

    picks = st.integers(0, 5)
    several = st.lists(picks, min_size=1, max_size=3).map(tuple)
    return st.one_of(
        st.builds(fake.Finish, several),
        st.builds(fake.Commit, several),
        st.builds(fake.Raise, picks),
        st.builds(fake.Die, picks, st.integers(0, 2)),
        st.builds(fake.Start, picks),
        st.builds(fake.FailStart, picks, st.booleans()),
        st.builds(fake.Answer, picks),
        st.builds(fake.Pass, st.sampled_from([0.1, 1.0, 20.0])),
        st.just(fake.Ring()),
        *([st.builds(fake.Hang, picks)] if hangs else []),
        *(
            [
                st.sampled_from(
                    ["wait", "return", "dispatch", "dispatched", "request", "requested"]
                ).map(fake.Interrupt)
            ]
            if interrupts
            else []
        ),
    )


def schedules(
    max_events: int = 4, *, hangs: bool = True, interrupts: bool = True
) -> st.SearchStrategy[list[Any]]:
    """Draws what happens in a `FakeBackend`, one thing after the other."""
    actions = backend_actions(hangs=hangs, interrupts=interrupts)
    return st.lists(actions, max_size=max_events)
