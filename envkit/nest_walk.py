"""Walking through nests: what is a container, what is in it, and how two differ."""

from __future__ import annotations

import collections
import collections.abc
from collections.abc import Iterator
from typing import Any, NamedTuple

from envkit.errors import SpecError
from envkit.wording import a_or_an, counted, listed

__all__ = [
    "Pair",
    "is_attrs",
    "is_namedtuple",
    "is_nested",
    "is_plain",
    "is_proxy",
    "join",
    "kind_of",
    "outline",
    "pair_up",
    "shown",
    "sorted_keys",
    "step_into",
]

_LEAF_TYPES = (
    str,
    bytes,
    bytearray,
    int,
    float,
    complex,
    bool,
    type(None),
    collections.UserString,  # a sequence whose elements are sequences without end
)


def is_namedtuple(value: Any) -> bool:
    """Says whether `value` is a namedtuple."""
    return isinstance(value, tuple) and hasattr(value, "_fields")


def is_attrs(value: Any) -> bool:
    """Says whether `value` is of a class that attrs made."""
    return hasattr(value.__class__, "__attrs_attrs__")


def is_proxy(value: Any) -> bool:
    """Says whether `value` passes itself off as what it stands for, as wrapt's do."""
    return value.__class__ is not type(value) and hasattr(value, "__wrapped__")


def is_nested(value: Any) -> bool:
    """Says whether `value` is a container rather than a leaf.

    Example:
        >>> is_nested({"a": 1}), is_nested([]), is_nested("text"), is_nested(3.0)
        (True, True, False, False)
    """
    kind = type(value)
    if kind is dict or kind is list or kind is tuple:
        return True
    if isinstance(value, _LEAF_TYPES):
        return False
    return isinstance(
        value,
        (
            collections.abc.Mapping,
            collections.abc.MappingView,
            collections.abc.Sequence,
        ),
    ) or is_attrs(value)


def is_plain(value: Any) -> bool:
    """Says whether `value` is a dict, list, tuple or namedtuple and nothing else."""
    kind = type(value)
    if kind is dict or kind is list or kind is tuple:
        return True
    return is_namedtuple(value) and not is_proxy(value)


def sorted_keys(mapping: collections.abc.Mapping[Any, Any], path: str) -> list[Any]:
    """Returns the keys in the order of leaves, or refuses those without an order."""
    try:
        return sorted(mapping)
    except TypeError:
        raise SpecError(
            f"The keys of the dictionary{f' at {path}' if path else ''} have no order: "
            f"{', '.join(map(repr, mapping))}. Nests are flattened in the order of "
            "their keys: use keys of one type."
        ) from None


def step_into(container: Any, path: str) -> list[tuple[str, Any]]:
    """Lists the children of a container with their paths, in the order of leaves."""
    if is_namedtuple(container):
        return [
            (join(path, name), getattr(container, name)) for name in container._fields
        ]
    if isinstance(container, collections.abc.Mapping):
        return [
            (f"{path}[{key!r}]", container[key]) for key in sorted_keys(container, path)
        ]
    if is_attrs(container):
        return [
            (join(path, field.name), getattr(container, field.name))
            for field in container.__class__.__attrs_attrs__
        ]
    return [(f"{path}[{index}]", child) for index, child in enumerate(container)]


def join(root: str, path: str) -> str:
    """Writes a path below a root: `action` and `['move']` make `action['move']`."""
    if not root or not path or path.startswith("["):
        return f"{root}{path}"
    return f"{root}.{path}"


class Pair(NamedTuple):
    """One place where a template and a value were held against each other.

    Attributes:
        path: The place, such as `['camera'][0]`.
        template: The template's leaf or, where the structures differ, its subtree.
        value: What the value has there.
        problem: Why the structures differ here; empty where they agree.
    """

    path: str
    template: Any
    value: Any
    problem: str = ""


def pair_up(template: Any, value: Any, path: str = "") -> Iterator[Pair]:
    """Yields every leaf of `template` beside what `value` has in its place.

    Where `value` is shaped differently, one pair with a `problem` stands for the whole
    subtree. Below a leaf of `template` nothing is looked at: a list is a fine value.

    Example:
        >>> for pair in pair_up({"a": 1, "b": (2, 3)}, {"a": 10, "b": (20,)}):
        ...     print(pair.path, pair.problem or "agrees")
        ['a'] agrees
        ['b'] The tuple has 1 element; 2 are expected.
    """
    if not is_nested(template):
        yield Pair(path, template, value)
        return
    problem = _difference(template, value)
    if problem:
        yield Pair(path, template, value, problem)
        return
    for (place, part), (_, item) in zip(
        step_into(template, path), step_into(value, path), strict=True
    ):
        yield from pair_up(part, item, place)


def kind_of(value: Any) -> str:
    """Says in a word or two what a container is."""
    # A proxy's __class__ is that of what it stands for.
    name: str = value.__class__.__name__
    if is_namedtuple(value):
        return f"namedtuple {name}"
    return "dictionary" if isinstance(value, dict) else name


def _difference(template: Any, value: Any) -> str:
    """Says in what way one container differs from another; empty if it does not."""
    mapping = collections.abc.Mapping
    if isinstance(template, mapping) and isinstance(value, mapping):
        return _difference_of_keys(template, value)
    if not is_nested(value):
        hint = " Did a return statement get lost?" if value is None else ""
        noun = "None" if value is None else f"a single {kind_of(value)}"
        return f"The value is {noun}; {a_or_an(kind_of(template))} is expected.{hint}"
    if is_namedtuple(template) and is_namedtuple(value):
        return _difference_of_fields(template, value)
    alike = is_namedtuple(value) == is_namedtuple(template)
    if is_attrs(template):
        alike = alike and _signature(template) == _signature(value)
    if not alike or not isinstance(value, template.__class__):
        expected = a_or_an(kind_of(template))
        return f"The value is {a_or_an(kind_of(value))}; {expected} is expected."
    if is_attrs(template):
        return ""
    if len(template) != len(value):
        have, want = len(value), len(template)
        verb = "is" if want == 1 else "are"
        return (
            f"The {kind_of(template)} has {counted(have, 'element')}; "
            f"{want} {verb} expected."
        )
    return ""


def _difference_of_fields(template: Any, value: Any) -> str:
    # Like tf.nest: namedtuples of equal name and fields are one structure, so time
    # steps of another library fit.
    expected, got = _signature(template), _signature(value)
    if expected == got:
        return ""
    return f"The value is a namedtuple {got}; {expected} is expected."


def _signature(value: Any) -> str:
    names = [path for path, _ in step_into(value, "")]
    return f"{value.__class__.__name__}({', '.join(names)})"


def _difference_of_keys(template: Any, value: Any) -> str:
    missing = [repr(key) for key in template if key not in value]
    extra = [repr(key) for key in value if key not in template]
    if not missing and not extra:
        return ""
    parts = []
    if missing:
        noun, verb = ("Key", "is") if len(missing) == 1 else ("Keys", "are")
        parts.append(f"{noun} {listed(missing, 5)} {verb} missing")
    if extra:
        noun, verb = ("key", "is") if len(extra) == 1 else ("keys", "are")
        parts.append(f"{noun} {listed(extra, 5)} {verb} not in the spec")
    text = "; ".join(parts)
    return f"{text[0].upper()}{text[1:]}."


def shown(value: Any) -> str:
    """Says what came where a container was expected."""
    if is_nested(value):
        return outline(value)
    return "None" if value is None else a_or_an(f"{kind_of(value)} object")


def outline(value: Any) -> str:
    """Draws a nest with `*` for every leaf, shortened: enough to recognise it."""
    text = _draw(value)
    return text if len(text) <= 120 else f"{text[:117]}..."


def _draw(value: Any) -> str:
    if not is_nested(value):
        return "*"
    if is_namedtuple(value):
        fields = (f"{n}={_draw(v)}" for n, v in zip(value._fields, value, strict=True))
        return f"{type(value).__name__}({', '.join(fields)})"
    if isinstance(value, collections.abc.Mapping):
        items = ", ".join(f"{key!r}: {_draw(value[key])}" for key in value)
        return f"{{{items}}}"
    parts = [_draw(child) for _, child in step_into(value, "")]
    if isinstance(value, tuple):
        return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"
    return f"[{', '.join(parts)}]"
