"""Flattens and rebuilds nested structures, with code compiled once per structure.

A nest is built from dicts, lists, tuples and namedtuples; everything else is a leaf.
Leaves come in the order of `tf.nest` and dm-tree: dictionaries by sorted key,
everything else in its own order. `Structure` compiles a nest of specs into two
straight-line functions, because steps flatten and rebuild nests thousands of times a
second. dm-tree handles other containers (attrs classes, ordered and custom mappings);
it is imported when first needed, because importing it takes nearly as long as NumPy.
"""

from __future__ import annotations

import collections
import collections.abc
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from envkit._internal.text import a_or_an, counted, listed
from envkit.errors import SpecError

if TYPE_CHECKING:
    from types import CodeType, ModuleType

__all__ = [
    "Pair",
    "Structure",
    "assert_same_structure",
    "first_leaf",
    "flatten",
    "flatten_with_paths",
    "is_attrs",
    "is_namedtuple",
    "is_nested",
    "is_plain",
    "is_proxy",
    "join",
    "kind_of",
    "map_structure",
    "outline",
    "pair_up",
    "shown",
    "sorted_keys",
    "step_into",
    "unflatten_as",
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
    collections.UserString,  # a sequence whose elements are sequences, without end
)
_CONTAINERS = (
    collections.abc.Mapping,
    collections.abc.MappingView,
    collections.abc.Sequence,
)


def is_namedtuple(value: Any) -> bool:
    """Returns True if `value` is a namedtuple."""
    return isinstance(value, tuple) and hasattr(value, "_fields")


def is_attrs(value: Any) -> bool:
    """Returns True if `value` is an instance of an attrs class."""
    return hasattr(value.__class__, "__attrs_attrs__")


def is_proxy(value: Any) -> bool:
    """Returns True if `value` is a proxy for another object, as in wrapt."""
    return value.__class__ is not type(value) and hasattr(value, "__wrapped__")


def is_nested(value: Any) -> bool:
    """Returns True if `value` is a container rather than a leaf.

    Example:
        >>> is_nested({"a": 1}), is_nested([]), is_nested("text"), is_nested(3.0)
        (True, True, False, False)
    """
    kind = type(value)
    if kind is dict or kind is list or kind is tuple:
        return True
    if value.__class__ is kind:
        # `isinstance` would read the property `__class__` of a spec a dozen times.
        if issubclass(kind, _LEAF_TYPES):
            return False
        return issubclass(kind, _CONTAINERS) or hasattr(kind, "__attrs_attrs__")
    if isinstance(value, _LEAF_TYPES):
        return False
    return isinstance(value, _CONTAINERS) or is_attrs(value)


def is_plain(value: Any) -> bool:
    """Returns True if `value` is a dict, list, tuple or namedtuple and nothing else."""
    kind = type(value)
    if kind is dict or kind is list or kind is tuple:
        return True
    return is_namedtuple(value) and not is_proxy(value)


def sorted_keys(mapping: collections.abc.Mapping[Any, Any], path: str) -> list[Any]:
    """Returns the keys in the order of leaves; raises if they have no order."""
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
    """Appends a path to a root: `action` and `['move']` make `action['move']`."""
    if not root or not path or path.startswith("["):
        return f"{root}{path}"
    return f"{root}.{path}"


class Pair(NamedTuple):
    """Pairs one position of a template with the value there.

    Attributes:
        path: The path, such as `['camera'][0]`.
        template: The template's leaf or, where the structures differ, its subtree.
        value: The value at the same path.
        problem: Why the structures differ here; empty if they agree.
    """

    path: str
    template: Any
    value: Any
    problem: str = ""


def pair_up(template: Any, value: Any, path: str = "") -> Iterator[Pair]:
    """Yields every leaf of `template` with the value at the same path.

    If structures differ, one pair with a `problem` stands for the whole subtree. Below
    a leaf of `template`, anything is accepted: a list is a valid value.

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
    """Names the kind of a container in a word or two."""
    # A proxy's __class__ is that of the object behind it.
    name: str = value.__class__.__name__
    if is_namedtuple(value):
        return f"namedtuple {name}"
    return "dictionary" if isinstance(value, dict) else name


def _difference(template: Any, value: Any) -> str:
    """Describes how one container differs from another; empty if it does not."""
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
    # As in tf.nest, namedtuples with equal names and fields have the same structure, so
    # time steps of another library fit.
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
    """Describes a value found instead of a container."""
    if is_nested(value):
        return outline(value)
    return "None" if value is None else a_or_an(f"{kind_of(value)} object")


def outline(value: Any) -> str:
    """Shows a nest with `*` for every leaf, shortened but recognisable."""
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


# Python's compiler gives up on expressions nested deeper than about 200.
_DEEPEST = 50


class Structure:
    """Compiles flatten and unflatten for the structure of a nest.

    `flatten(value)` returns the leaves of any value of this structure, in order; the
    `SpecError` for another structure names the path. `unflatten(leaves)` is its
    inverse. Both are attributes rather than methods, because they are generated
    functions. Compiling takes a hundred times as long as calling them: make a structure
    once and keep it.

    Attributes:
        template: The nest it was made from.
        leaves: The template's leaves (mostly specs), in order.
        paths: The path of each leaf, such as `['camera'][0]`.

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
        return _leaves_like(self.template, value)

    def _unflatten_as(self, leaves: Sequence[Any]) -> Any:
        self._check_count(leaves)
        return _rebuild(self.template, iter(leaves))

    def _check_count(self, leaves: Sequence[Any]) -> None:
        if len(leaves) != len(self.leaves):
            raise SpecError(_wrong_count(leaves, self.template, len(self.leaves)))

    def __reduce__(self) -> tuple[type[Structure], tuple[Any]]:
        return Structure, (self.template,)

    def __repr__(self) -> str:
        return f"Structure({outline(self.template)})"


def _wrong_count(leaves: Sequence[Any], template: Any, places: int) -> str:
    given = counted(len(leaves), "leaf", "leaves")
    return (
        f"{given} cannot be packed into the structure {outline(template)}, which has "
        f"{places}."
    )


class _Compiler:
    """Writes the source code of one structure's flatten and unflatten.

    flatten is a chain of exact type and length checks, each followed by its look-ups,
    and returns one list. Any surprise goes to the slow path, which accepts look-alikes
    (an OrderedDict for a dict) or raises with an explanation. unflatten is one
    expression.
    """

    def __init__(self, structure: Structure) -> None:
        self._structure = structure
        self._constants: dict[str, Any] = {}
        self._lines: list[str] = []
        self._leaves: list[str] = []
        self._expression = ""
        self._depth = max(
            (path.count("[") + path.count(".") for path in structure.paths), default=0
        )

    def visit(self, template: Any) -> bool:
        """Visits the template; False if dm-tree must handle a container in it."""
        try:
            self._expression = self._walk(template, "value")
        except _NotPlainError:
            return False
        return self._depth <= _DEEPEST

    def functions(
        self,
    ) -> tuple[Callable[[Any], list[Any]], Callable[[Sequence[Any]], Any]]:
        """Compiles the code that `visit` has written."""
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
            "OrderedDict": collections.OrderedDict,
            "Surprise": KeyError,
            "explain": self._structure._flatten_up_to,
            "check_count": self._structure._check_count,
            "count": len(self._leaves),
        }
        exec(_compiled(source), scope)
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
        if not is_plain(template):
            raise _NotPlainError
        kind = self._constant(type(template))
        unlike = f"type({name}) is not {kind}"
        if type(template) is dict:
            # The only common look-alike, and here as good as a dictionary.
            unlike = f"{unlike} and type({name}) is not OrderedDict"
        self._lines.append(
            f"if {unlike} or len({name}) != {len(template)}: return explain(value)"
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
        # A namedtuple's class may have its own __new__; _make bypasses it, as replacing
        # fields of an existing tuple would.
        if is_namedtuple(template):
            return f"{kind}._make(({items}))"
        return f"({items})"

    def _walk_dict(self, template: dict[Any, Any], name: str) -> str:
        parts = {}
        for key in sorted_keys(template, ""):
            key_name = self._constant(key)
            parts[key] = (
                key_name,
                self._walk_child(template[key], f"{name}[{key_name}]"),
            )
        # Rebuilt in the template's own order, because users see it; flattened in sorted
        # order, because tf.nest requires it.
        items = ", ".join(f"{n}: {e}" for n, e in (parts[key] for key in template))
        return f"{{{items}}}"

    def _walk_child(self, child: Any, access: str) -> str:
        if not is_nested(child):
            return self._walk(child, access)
        name = f"node_{len(self._lines)}"
        self._lines.append(f"{name} = {access}")
        return self._walk(child, name)


@functools.lru_cache(maxsize=256)
def _compiled(source: str) -> CodeType:
    """Compiles a structure's functions; environments of a batch share them."""
    return compile(source, "<envkit.nest.Structure>", "exec")


class _NotPlainError(Exception):
    """A container that only dm-tree can rebuild."""


def _rebuild(template: Any, leaves: Iterator[Any]) -> Any:
    """Packs leaves into the structure of `template`, in the order of leaves."""
    if not is_nested(template):
        return next(leaves)
    if is_proxy(template):
        # dm-tree caches by type whether it is a mapping. A proxy's type may stand for
        # anything, so dm-tree never sees a proxy.
        return type(template)(_rebuild(template.__wrapped__, leaves))
    if not is_plain(template):
        return _rebuild_foreign(template, leaves)
    if isinstance(template, dict):
        parts = {
            key: _rebuild(template[key], leaves) for key in sorted_keys(template, "")
        }
        return {key: parts[key] for key in template}
    children = [_rebuild(child, leaves) for child in template]
    if is_namedtuple(template):
        return template._make(children)
    return tuple(children) if isinstance(template, tuple) else children


def _rebuild_foreign(template: Any, leaves: Iterator[Any]) -> Any:
    """Rebuilds a container with dm-tree, but its children with our own code."""
    if isinstance(template, collections.Counter | collections.ChainMap):
        # dm-tree would build these from pairs, with another result.
        keys = sorted_keys(template, "")
        return type(template)({key: _rebuild(template[key], leaves) for key in keys})
    if isinstance(template, list):
        # dm-tree passes an iterator, which TensorFlow's own mapping does not accept.
        return type(template)([_rebuild(child, leaves) for child in template])
    tree = _tree()
    entered = False

    def visit(part: Any) -> Any:
        nonlocal entered
        if not entered:
            entered = True
            return None  # tells dm-tree to go on into the container
        rebuilt = _rebuild(part, leaves)
        return tree.MAP_TO_NONE if rebuilt is None else rebuilt

    return tree.traverse(visit, template, top_down=True)


def _tree() -> ModuleType:
    import tree

    return tree  # type: ignore[no-any-return]


def first_leaf(value: Any) -> Any:
    """Returns the first leaf in the order of leaves, or `None` if there is none."""
    # Hot: called for every time step that is made while TensorFlow is loaded.
    return next(_leaves(value), None) if is_nested(value) else value


def _leaves(value: Any) -> Iterator[Any]:
    # Without paths, which take longer to write than the traversal.
    if not is_nested(value):
        yield value
        return
    children: Any = value
    if isinstance(value, collections.abc.Mapping):
        children = (value[key] for key in sorted_keys(value, ""))
    elif is_attrs(value):
        children = (child for _, child in step_into(value, ""))
    for child in children:
        yield from _leaves(child)


def flatten(value: Any) -> list[Any]:
    """Returns the leaves of any nest, in order.

    Example:
        >>> flatten({"b": 3, "a": (1, 2)})
        [1, 2, 3]
    """
    return list(_leaves(value))


def flatten_with_paths(value: Any) -> list[tuple[str, Any]]:
    """Returns the leaves of any nest with their paths.

    Example:
        >>> flatten_with_paths({"b": 3, "a": (1, 2)})
        [("['a'][0]", 1), ("['a'][1]", 2), ("['b']", 3)]
    """
    return [(pair.path, pair.template) for pair in pair_up(value, value)]


def map_structure(function: Callable[..., Any], *values: Any) -> Any:
    """Applies `function` to corresponding leaves of nests of equal structure.

    Example:
        >>> map_structure(lambda x, y: x + y, {"a": [1, 2]}, {"a": [10, 20]})
        {'a': [11, 22]}
    """
    first, *others = values
    if not is_nested(first):
        return function(*values)
    columns = [
        flatten(first),
        *(_leaves_like(first, other, exactly=True) for other in others),
    ]
    rows = zip(*columns, strict=True)
    return _rebuild(first, iter([function(*row) for row in rows]))


def _leaves_like(template: Any, value: Any, *, exactly: bool = False) -> list[Any]:
    """Flattens a value to the depth of a template; `exactly` refuses deeper values."""
    leaves = []
    for pair in pair_up(template, value):
        problem = pair.problem
        if not problem and exactly and is_nested(pair.value):
            problem = f"The value is {a_or_an(kind_of(pair.value))}."
        if problem:
            raise SpecError.does_not_fit(
                "The value",
                path=pair.path,
                expected=f"the structure {outline(pair.template)}",
                got=shown(pair.value),
                reason=problem,
            )
        leaves.append(pair.value)
    return leaves


def unflatten_as(template: Any, leaves: Sequence[Any]) -> Any:
    """Packs leaves into the structure of `template`.

    Example:
        >>> unflatten_as({"b": 0, "a": (0, 0)}, [1, 2, 3])
        {'b': 3, 'a': (1, 2)}
    """
    places = len(flatten(template))
    if len(leaves) != places:
        raise SpecError(_wrong_count(leaves, template, places))
    return _rebuild(template, iter(leaves))


def assert_same_structure(first: Any, second: Any, *, check_types: bool = True) -> None:
    """Raises unless two nests have the same structure: dm-tree's rules and errors."""
    _tree().assert_same_structure(first, second, check_types=check_types)
