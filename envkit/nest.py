"""Nested structures: flattened and rebuilt by code compiled once per structure.

A nest is built from dicts, lists, tuples and namedtuples; everything else is a leaf.
The order of leaves is that of `tf.nest` and dm-tree: dictionaries by sorted key,
everything else in its own order. `Structure` compiles a nest of specs into two
straight-line functions, because a step flattens and rebuilds nests thousands of times
a second. Containers of other kinds (attrs classes, proxies, ordered and custom
mappings) and everything that is not on the way of a step are dm-tree's business; it
is imported when first needed, since it costs nearly as much to import as NumPy.
"""

from __future__ import annotations

import collections.abc
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from envkit.errors import SpecError

if TYPE_CHECKING:
    from types import ModuleType

__all__ = [
    "Pair",
    "Structure",
    "assert_same_structure",
    "first_leaf",
    "flatten",
    "flatten_with_paths",
    "is_nested",
    "join",
    "map_structure",
    "outline",
    "pair_up",
    "unflatten_as",
]

_LEAF_TYPES = (str, bytes, bytearray, int, float, complex, bool, type(None))


def _is_namedtuple(value: Any) -> bool:
    return isinstance(value, tuple) and hasattr(value, "_fields")


def _is_attrs(value: Any) -> bool:
    return hasattr(type(value), "__attrs_attrs__")


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
    ) or _is_attrs(value)


def _is_plain(value: Any) -> bool:
    """Says whether this module compiles the container itself."""
    kind = type(value)
    return kind is dict or kind is list or kind is tuple or _is_namedtuple(value)


def _sorted_keys(mapping: collections.abc.Mapping[Any, Any], path: str) -> list[Any]:
    try:
        return sorted(mapping)
    except TypeError:
        raise SpecError(
            f"The keys of the dictionary{f' at {path}' if path else ''} have no order: "
            f"{', '.join(map(repr, mapping))}. Nests are flattened in the order of "
            "their keys: use keys of one type."
        ) from None


def _step_into(container: Any, path: str) -> list[tuple[str, Any]]:
    """Lists the children of a container with their paths, in the order of leaves."""
    if _is_namedtuple(container):
        return [
            (join(path, name), getattr(container, name)) for name in container._fields
        ]
    if isinstance(container, collections.abc.Mapping):
        return [
            (f"{path}[{key!r}]", container[key])
            for key in _sorted_keys(container, path)
        ]
    if _is_attrs(container):
        return [
            (join(path, field.name), getattr(container, field.name))
            for field in type(container).__attrs_attrs__
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
        _step_into(template, path), _step_into(value, path), strict=True
    ):
        yield from pair_up(part, item, place)


def _kind(value: Any) -> str:
    if value is None:
        return "None"
    if _is_namedtuple(value):
        return f"namedtuple {type(value).__name__}"
    if isinstance(value, dict):
        return "dictionary"
    return type(value).__name__


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _difference(template: Any, value: Any) -> str:
    """Says in what way one container differs from another; empty if it does not."""
    mapping = collections.abc.Mapping
    if isinstance(template, mapping) and isinstance(value, mapping):
        return _difference_of_keys(template, value)
    if _is_namedtuple(template) and _is_namedtuple(value):
        # Like tf.nest: equal name and fields make the same structure, so time steps
        # of another library fit.
        same = (type(template).__name__, template._fields) == (
            type(value).__name__,
            value._fields,
        )
        return (
            ""
            if same
            else f"The value is a namedtuple {type(value).__name__}"
            f"({', '.join(value._fields)}); {type(template).__name__}"
            f"({', '.join(template._fields)}) is expected."
        )
    if not is_nested(value):
        hint = " Did a return statement get lost?" if value is None else ""
        noun = "None" if value is None else f"a single {_kind(value)}"
        return f"The value is {noun}; a {_kind(template)} is expected.{hint}"
    # isinstance in one direction lets proxies pass for what they stand for.
    if type(value) is not type(template) and not isinstance(value, type(template)):
        return f"The value is a {_kind(value)}; a {_kind(template)} is expected."
    if _is_namedtuple(value) != _is_namedtuple(template):
        return f"The value is a {_kind(value)}; a {_kind(template)} is expected."
    if _is_attrs(template):
        return ""
    if len(template) != len(value):
        have, want = len(value), len(template)
        verb = "is" if want == 1 else "are"
        return (
            f"The {_kind(template)} has {_plural(have, 'element')}; "
            f"{want} {verb} expected."
        )
    return ""


def _difference_of_keys(template: Any, value: Any) -> str:
    missing = [repr(key) for key in template if key not in value]
    extra = [repr(key) for key in value if key not in template]
    if not missing and not extra:
        return ""
    parts = []
    if missing:
        noun, verb = ("Key", "is") if len(missing) == 1 else ("Keys", "are")
        parts.append(f"{noun} {_listed(missing)} {verb} missing")
    if extra:
        noun, verb = ("key", "is") if len(extra) == 1 else ("keys", "are")
        parts.append(f"{noun} {_listed(extra)} {verb} not in the spec")
    text = "; ".join(parts)
    return f"{text[0].upper()}{text[1:]}."


def _listed(names: Sequence[str], most: int = 5) -> str:
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


class Structure:
    """A nest's structure, with flatten and unflatten compiled for it.

    `flatten(value)` returns the leaves of any value of this structure, in order, and
    refuses other structures with a `SpecError` that names the place.
    `unflatten(leaves)` is its inverse. Both are attributes, not methods, because they
    are generated functions.

    Attributes:
        template: The nest it was made from.
        leaves: The template's leaves (specs, mostly), in order.
        paths: Where each leaf is, such as `['camera'][0]`.

    Example:
        >>> structure = Structure({"b": 0, "a": (0, 0)})
        >>> structure.flatten({"b": 3, "a": (1, 2)})
        [1, 2, 3]
        >>> structure.unflatten([1, 2, 3])
        {'b': 3, 'a': (1, 2)}
        >>> structure.paths
        ("['a'][0]", "['a'][1]", "['b']")
    """

    __slots__ = ("flatten", "leaves", "paths", "template", "unflatten")

    template: Any
    leaves: tuple[Any, ...]
    paths: tuple[str, ...]
    flatten: Callable[[Any], list[Any]]
    unflatten: Callable[[Sequence[Any]], Any]

    def __init__(self, template: Any) -> None:
        self.template = template
        pairs = list(pair_up(template, template))
        self.leaves = tuple(pair.template for pair in pairs)
        self.paths = tuple(pair.path for pair in pairs)
        compiler = _Compiler(self)
        if compiler.visit(template):
            self.flatten, self.unflatten = compiler.functions()
        else:
            self.flatten, self.unflatten = self._flatten_up_to, self._unflatten_as

    def map(self, function: Callable[..., Any], *values: Any) -> Any:
        """Applies `function` to the leaves of `values` and keeps the structure."""
        columns = [self.flatten(value) for value in values]
        return self.unflatten([function(*row) for row in zip(*columns, strict=True)])

    def _flatten_up_to(self, value: Any) -> list[Any]:
        leaves = []
        for pair in pair_up(self.template, value):
            if pair.problem:
                raise SpecError.does_not_fit(
                    "The value",
                    path=pair.path,
                    expected=f"the structure {outline(pair.template)}",
                    got=outline(pair.value),
                    reason=pair.problem,
                )
            leaves.append(pair.value)
        return leaves

    def _unflatten_as(self, leaves: Sequence[Any]) -> Any:
        self._check_count(leaves)
        return _tree().unflatten_as(self.template, leaves)

    def _check_count(self, leaves: Sequence[Any]) -> None:
        if len(leaves) != len(self.leaves):
            raise SpecError(
                f"{_plural(len(leaves), 'leaf').replace('leafs', 'leaves')} cannot be "
                f"packed into the structure {outline(self.template)}, which has "
                f"{len(self.leaves)}."
            )

    def __reduce__(self) -> tuple[type[Structure], tuple[Any]]:
        return Structure, (self.template,)

    def __repr__(self) -> str:
        return f"Structure({outline(self.template)})"


def outline(value: Any) -> str:
    """Draws a nest with `*` for every leaf, shortened: enough to recognise it."""
    text = _draw(value)
    return text if len(text) <= 120 else f"{text[:117]}..."


def _draw(value: Any) -> str:
    if not is_nested(value):
        return "*"
    if _is_namedtuple(value):
        fields = (f"{n}={_draw(v)}" for n, v in zip(value._fields, value, strict=True))
        return f"{type(value).__name__}({', '.join(fields)})"
    if isinstance(value, collections.abc.Mapping):
        items = ", ".join(f"{key!r}: {_draw(value[key])}" for key in value)
        return f"{{{items}}}"
    parts = [_draw(child) for _, child in _step_into(value, "")]
    if isinstance(value, tuple):
        return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"
    return f"[{', '.join(parts)}]"


class _Compiler:
    """Writes the source of one structure's flatten and unflatten.

    flatten becomes a chain of exact type and length checks, each followed by the
    look-ups below it, and a return of one list; any surprise goes to the slow path,
    which accepts look-alikes (an OrderedDict for a dict) or explains. unflatten
    becomes one expression.
    """

    def __init__(self, structure: Structure) -> None:
        self._structure = structure
        self._constants: dict[str, Any] = {}
        self._lines: list[str] = []
        self._leaves: list[str] = []
        self._expression = ""

    def visit(self, template: Any) -> bool:
        """Walks the template; false if it holds a container that is dm-tree's."""
        try:
            self._expression = self._walk(template, "value")
        except _NotPlainError:
            return False
        return True

    def functions(
        self,
    ) -> tuple[Callable[[Any], list[Any]], Callable[[Sequence[Any]], Any]]:
        """Compiles what `visit` has written."""
        names = "".join(f"{name}, " for name in self._leaves)
        body = "\n".join(f"        {line}" for line in self._lines)
        source = (
            "def flatten(value):\n"
            "    try:\n"
            f"{body}\n"
            f"        return [{names}]\n"
            "    except Surprise:\n"
            "        return explain(value)\n"
            "def unflatten(leaves):\n"
            "    if len(leaves) != count:\n"
            "        check_count(leaves)\n"
            + (f"    {names}= leaves\n" if names else "")
            + f"    return {self._expression}\n"
        )
        scope: dict[str, Any] = {
            **self._constants,
            "Surprise": KeyError,
            "explain": self._structure._flatten_up_to,
            "check_count": self._structure._check_count,
            "count": len(self._leaves),
        }
        exec(compile(source, "<envkit.nest.Structure>", "exec"), scope)
        return scope["flatten"], scope["unflatten"]

    def _constant(self, value: Any) -> str:
        name = f"constant_{len(self._constants)}"
        self._constants[name] = value
        return name

    def _walk(self, template: Any, name: str) -> str:
        """Handles the container or leaf in variable `name`; returns its expression."""
        if not is_nested(template):
            leaf = f"leaf_{len(self._leaves)}"
            self._leaves.append(leaf)
            self._lines.append(f"{leaf} = {name}")
            return leaf
        if not _is_plain(template):
            raise _NotPlainError
        kind = self._constant(type(template))
        self._lines.append(
            f"if type({name}) is not {kind} or len({name}) != {len(template)}: "
            "return explain(value)"
        )
        if type(template) is dict:
            return self._walk_dict(template, name)
        parts = [
            self._walk_child(child, f"{name}[{index}]")
            for index, child in enumerate(template)
        ]
        items = "".join(f"{part}, " for part in parts)
        if type(template) is list:
            return f"[{items}]"
        # A namedtuple's class may have its own __new__; _make goes around it, as
        # replacing the fields of an existing tuple would.
        if _is_namedtuple(template):
            return f"{kind}._make(({items}))"
        return f"({items})"

    def _walk_dict(self, template: dict[Any, Any], name: str) -> str:
        parts = {}
        for key in _sorted_keys(template, ""):
            key_name = self._constant(key)
            parts[key] = (
                key_name,
                self._walk_child(template[key], f"{name}[{key_name}]"),
            )
        # Rebuilt in the template's own order, which users see; flattened in sorted
        # order, which tf.nest demands.
        items = ", ".join(f"{n}: {e}" for n, e in (parts[key] for key in template))
        return f"{{{items}}}"

    def _walk_child(self, child: Any, access: str) -> str:
        if not is_nested(child):
            return self._walk(child, access)
        name = f"node_{len(self._lines)}"
        self._lines.append(f"{name} = {access}")
        return self._walk(child, name)


class _NotPlainError(Exception):
    """A container that only dm-tree knows how to rebuild."""


def _tree() -> ModuleType:
    import tree

    return tree  # type: ignore[no-any-return]


def first_leaf(value: Any) -> Any:
    """Returns the first leaf in the order of leaves, or `None` if there is none."""
    while is_nested(value):
        children = _step_into(value, "")
        for _, child in children:
            if not is_nested(child):
                return child
            leaf = first_leaf(child)
            if leaf is not None:
                return leaf
        return None
    return value


def flatten(value: Any) -> list[Any]:
    """Returns the leaves of any nest, in order."""
    if not is_nested(value):
        return [value]
    return list(_tree().flatten(value))


def flatten_with_paths(value: Any) -> list[tuple[str, Any]]:
    """Returns the leaves of any nest beside their paths."""
    return [(pair.path, pair.template) for pair in pair_up(value, value)]


def map_structure(function: Callable[..., Any], *values: Any) -> Any:
    """Applies `function` to corresponding leaves of nests of equal structure."""
    if not is_nested(values[0]):
        return function(*values)
    return _tree().map_structure(function, *values)


def unflatten_as(template: Any, leaves: Sequence[Any]) -> Any:
    """Packs leaves into the structure of `template`."""
    if not is_nested(template):
        (leaf,) = leaves
        return leaf
    return _tree().unflatten_as(template, leaves)


def assert_same_structure(first: Any, second: Any, *, check_types: bool = True) -> None:
    """Raises unless two nests have the same structure: dm-tree's rules and errors."""
    _tree().assert_same_structure(first, second, check_types=check_types)
