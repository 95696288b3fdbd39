"""Describes an environment's origin as plain data that JSON can store and restore.

A `Constructor` leaves an `Origin` on the environment it builds, and `seed()` records
its seed. Everything else is determined on request.

In plain data, JSON's own types are written as they are. Any other value is an object
with one key that begins with a dollar sign, such as `{"$tuple": [1, 2]}`; an array is
its dtype, its shape and its bytes in base64.
"""

from __future__ import annotations

import collections
import functools
import itertools
import math
import sys
import warnings
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from envkit._internal.text import version_of, without_version
from envkit.specs.validation import describe

__all__ = [
    "MadeBy",
    "Origin",
    "PlainDataError",
    "VersionWarning",
    "check_made_by",
    "dumped",
    "envkit_version",
    "from_plain",
    "loaded",
    "made_by",
    "name_of",
    "origin_of",
    "package_version",
    "packages_behind",
    "packages_of",
    "plain_arguments",
    "plain_recipe",
    "provenance_of",
    "recipe_of",
    "recipe_of_rows",
    "record_seed",
    "to_plain",
    "version_of",
    "without_version",
    "wrapper_recipe",
]


# Provenance only describes arrays that are larger than this.
_LARGEST = 4096


class VersionWarning(UserWarning):
    """A state or recording comes from another version of envkit."""


class Origin(NamedTuple):
    """Records the recipe of an environment.

    Attributes:
        id: The target given to `make`.
        arguments: The keyword arguments, as plain data.
        inner: The origin that the environment's inner constructor recorded, or `None`.
    """

    id: str
    arguments: dict[str, Any] | None
    inner: Origin | None = None


class MadeBy(NamedTuple):
    """Names the versions with which a state was saved.

    Attributes:
        id: The environment's id, if it has a version.
        envkit: The version of envkit.
    """

    id: str | None
    envkit: str


def envkit_version() -> str:
    """Returns the version of this envkit."""
    return str(sys.modules["envkit"].__version__)


def name_of(thing: Any) -> str:
    """Returns `"module:name"` of a class or function.

    Example:
        >>> name_of(MadeBy)
        'envkit.provenance:MadeBy'
    """
    kind = thing if hasattr(thing, "__qualname__") else type(thing)
    return f"{kind.__module__}:{kind.__qualname__}"


def plain_arguments(arguments: Any, place: str = "arguments") -> Any:
    """Returns any arguments as plain data.

    Args:
        arguments: The arguments, or any other value.
        place: Their name in messages.

    Returns:
        The result of `to_plain`, with `{"$name": ...}` for functions and classes, and
        `{"$unknown": ...}` for large arrays and for values that no data can hold.

    Example:
        >>> plain_arguments({"size": (3, 4), "rng": object()})
        {'size': {'$tuple': [3, 4]}, 'rng': {'$unknown': 'a object object'}}
    """
    return to_plain(_without_large(arguments), place, _unknown)


class _Placeholder:
    """Stands in for an array that is too large to keep."""

    def __init__(self, text: str) -> None:
        self.text = text


def _without_large(value: Any) -> Any:
    if isinstance(value, np.ndarray) and value.nbytes > _LARGEST:
        return _Placeholder(f"an array of shape {value.shape}, dtype {value.dtype}")
    if type(value) in (list, tuple):
        return type(value)(map(_without_large, value))
    if type(value) is dict:
        return {key: _without_large(item) for key, item in value.items()}
    return value


def _unknown(value: Any, _: str) -> Any:
    if isinstance(value, _Placeholder):
        return {"$unknown": value.text}
    as_recipe = getattr(type(value), "plain_recipe", None)
    if as_recipe is not None:
        return {"$constructor": as_recipe(value)}
    if isinstance(value, functools.partial):
        return {
            "$partial": [
                plain_arguments(part)
                for part in (value.func, list(value.args), dict(value.keywords))
            ]
        }
    if callable(value) and hasattr(value, "__qualname__"):
        name = name_of(value)
        return {"$unknown" if "<" in name else "$name": name}
    return {"$unknown": f"a {type(value).__qualname__} object"}


def origin_of(env: Any) -> Origin | None:
    """Returns the origin that a `Constructor` has left on an environment."""
    origin = _kept(env, "origin")
    return origin if isinstance(origin, Origin) else None


def _kept(env: Any, name: str) -> Any:
    """Returns an attribute of an environment itself, not of an inner one."""
    # Looks at the class first: wrappers and mocks answer to any name.
    return getattr(env._envkit, name) if hasattr(type(env), "_envkit") else None


def record_seed(env: Any, seed: Any) -> None:
    """Records a seed as the one in the environment's provenance.

    Example:
        >>> from envkit.testing import CountingEnv
        >>> env = CountingEnv()
        >>> record_seed(env, 7)
        >>> env.provenance()["seed"]
        7
    """
    env._envkit.own(env).seed = seed


def recipe_of(env: Any) -> dict[str, Any]:
    """Returns an environment's recipe: everything needed to make another one.

    It has the keys of `PyEnvironment.provenance()` up to `wrappers`, and for a batch
    also `environments`. For an environment of another library, only the class is known.

    Example:
        >>> from envkit import make
        >>> recipe_of(make("Catch"))["id"]
        'Catch-v1'
    """
    if not hasattr(type(env), "_envkit"):
        return plain_recipe(env)
    recipe: dict[str, Any] = env._envkit.recipe(env)
    return recipe


def packages_of(env: Any) -> set[str]:
    """Names the packages that an environment of any library depends on."""
    if not hasattr(type(env), "_envkit"):
        return packages_behind(env)
    packages: set[str] = env._envkit.packages(env)
    return packages


def plain_recipe(env: Any) -> dict[str, Any]:
    """Returns the recipe of an environment that contains no other."""
    origin = origin_of(env)
    kind = name_of(type(env))
    seed = _kept(env, "seed")
    return {
        "id": kind if origin is None else origin.id,
        "version": None if origin is None else version_of(origin.id),
        "class": kind,
        "arguments": None if origin is None else origin.arguments,
        "seed": plain_arguments(seed),
        "wrappers": [],
    }


def wrapper_recipe(
    env: Any, inner: dict[str, Any], arguments: dict[str, Any]
) -> dict[str, Any]:
    """Returns the recipe of a wrapper, which extends that of the inner environment.

    Args:
        env: The wrapper.
        inner: The recipe of the inner environment.
        arguments: The wrapper's arguments, without the environment.

    Returns:
        The inner recipe with one more layer among its `wrappers`; the seed is the
        wrapper's if it has one.

    Example:
        >>> from envkit.envs import Catch
        >>> class Shouting(Catch):
        ...     pass
        >>> found = wrapper_recipe(Shouting(), recipe_of(Catch()), {"volume": 11})
        >>> found["wrappers"][0]["arguments"]
        {'volume': 11}
    """
    seed = plain_arguments(_kept(env, "seed"))
    layer = {"class": name_of(type(env)), "arguments": plain_arguments(arguments)}
    return {
        **inner,
        "seed": inner["seed"] if seed is None else seed,
        "wrappers": [layer, *inner["wrappers"]],
    }


def recipe_of_rows(env: Any, recipes: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Returns the recipe of a batch made of environments."""
    recipe = plain_recipe(env)
    if recipe["seed"] is not None:  # their seeds derive from the batch's
        recipes = [{**one, "seed": None} for one in recipes]
    runs = [(one, len(list(same))) for one, same in itertools.groupby(recipes)]
    return {**recipe, "environments": [{"count": n, **one} for one, n in runs]}


def provenance_of(env: Any) -> dict[str, Any]:
    """Returns everything known about an environment's origin, as plain data."""
    import platform

    packages = {"numpy", *packages_of(env)}
    versions = {name: package_version(name) for name in sorted(packages)}
    return {
        **recipe_of(env),
        "envkit": envkit_version(),
        "packages": {name: found for name, found in versions.items() if found},
        "python": platform.python_version(),
        "machine": _machine(),
    }


def packages_behind(env: Any) -> set[str]:
    """Names the packages that define an environment's class and its parts."""
    parts = list(getattr(env, "__dict__", {}).values())
    kinds = {type(env), *map(type, parts)}
    for part in parts:
        # For example, a Gymnasium wrapper and the game inside are of different
        # packages.
        if _package(type(part)) and not hasattr(type(part), "provenance"):
            kinds.add(type(getattr(part, "unwrapped", part)))
    return {package for kind in kinds if (package := _package(kind))}


def _package(kind: type) -> str:
    """Names the package of a class; "" for envkit's own and Python's."""
    known = {"envkit", "numpy", "__main__", "__mp_main__"} | sys.stdlib_module_names
    # A class made here or at run time counts as its base's package.
    packages = (base.__module__.partition(".")[0] for base in kind.__mro__)
    return next((package for package in packages if package not in known), "")


def package_version(name: str) -> str | None:
    """Returns the version of an installed package; `None` if unknown.

    Example:
        >>> package_version("no_such_package") is None
        True
    """
    import importlib.metadata

    try:
        return importlib.metadata.version(name.replace("_", "-"))
    except importlib.metadata.PackageNotFoundError:
        found = getattr(sys.modules.get(name), "__version__", None)
        return found if isinstance(found, str) else None


@functools.cache
def _machine_facts() -> tuple[tuple[str, Any], ...]:
    import os
    import platform

    return (
        ("system", platform.system()),
        ("release", platform.release()),
        ("architecture", platform.machine()),
        ("processor", _processor()),
        ("cpus", os.cpu_count()),
    )


def _machine() -> dict[str, Any]:
    return dict(_machine_facts())


def _processor() -> str | None:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as facts:
            for line in facts:
                name, _, value = line.partition(":")
                if name.strip() == "model name":
                    return value.strip()
    except OSError:  # Linux reports it this way
        pass
    return None


def made_by(env: Any) -> MadeBy:
    """Returns the versions to record in an environment's state."""
    origin = origin_of(env)
    while origin is not None and version_of(origin.id) is None:
        origin = origin.inner
    return MadeBy(None if origin is None else origin.id, envkit_version())


def check_made_by(env: Any, saved: MadeBy | None) -> None:
    """Raises for a state from another version of the environment.

    For a state from another version of envkit, it warns. `set_state` calls this; code
    that stores states in another form must call it first.

    Args:
        env: The environment that will get the state.
        saved: The versions that saved it; `None` if unknown.

    Raises:
        ValueError: The state comes from another version of the environment.
    """
    if saved is None:
        return
    if not isinstance(saved, MadeBy):
        raise ValueError(
            f"{type(env).__name__}.set_state() was given a state that is broken: what "
            f"has made it is {describe(saved)}. It takes what get_state() returned."
        )
    ours = made_by(env).id
    if (
        ours is not None
        and saved.id is not None
        and ours != saved.id
        and without_version(ours) == without_version(saved.id)
    ):
        raise ValueError(
            f"{type(env).__name__}.set_state() was given a state of {saved.id}, and "
            f"this environment is {ours}. What an environment does is fixed in each "
            f"version and differs between them: make({saved.id!r}) takes this state."
        )
    if saved.envkit != envkit_version():
        warnings.warn(
            f"{type(env).__name__}.set_state() was given a state that envkit "
            f"{saved.envkit} has saved, and this is envkit {envkit_version()}. What "
            "follows may differ from what would have followed there.",
            VersionWarning,
            stacklevel=3,
        )


Other = Callable[[Any, str], Any]


class PlainDataError(TypeError):
    """A value cannot be written as plain data.

    Attributes:
        place: Its path, such as `info['path'][0]`.
        value: The value.
    """

    def __init__(self, place: str, value: Any) -> None:
        super().__init__(
            f"{place} is of type {name_of(type(value))}, which plain data cannot hold."
        )
        self.place, self.value = place, value


def to_plain(value: Any, place: str = "value", other: Other | None = None) -> Any:
    """Converts a value to data for `json.dumps`; `from_plain` restores the value.

    Args:
        value: The value.
        place: Its name in messages.
        other: Called with a value that has no such form, and its path; returns the data
            to write instead. Without it, a `PlainDataError` is raised.

    Example:
        >>> to_plain({"path": (1, 2.5), "seen": [None, "a"]})
        {'path': {'$tuple': [1, 2.5]}, 'seen': [None, 'a']}
    """
    kind = type(value)
    if value is None or kind in (bool, int, str):
        return value
    if kind is float:
        return value if math.isfinite(value) else {"$float": repr(value)}
    if kind is list:
        return _items(value, place, other)
    if kind is tuple:
        return {"$tuple": _items(value, place, other)}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        fields = {
            name: to_plain(item, f"{place}.{name}", other)
            for name, item in zip(value._fields, value, strict=True)
        }
        return {"$namedtuple": {"name": name_of(kind), "fields": fields}}
    if kind is dict:
        return _dict(value, place, other)
    if isinstance(value, np.ndarray | np.generic) and not value.dtype.fields:
        if value.dtype.hasobject:
            items = _items(np.asarray(value).ravel().tolist(), place, other)
            return {"$objects": {"shape": list(value.shape), "items": items}}
        if _is_readable(value.dtype):
            tag = "$array" if isinstance(value, np.ndarray) else "$number"
            return {tag: _array(np.asarray(value))}
    if kind is bytes:
        return {"$bytes": _text(value)}
    if kind is complex:
        return {"$complex": [to_plain(value.real), to_plain(value.imag)]}
    pathlib = sys.modules.get("pathlib")  # if it is not loaded, there are no paths
    if pathlib is not None and isinstance(value, pathlib.PurePath):
        return {"$path": str(value)}
    if other is None:
        raise PlainDataError(place, value)
    return other(value, place)


def _items(values: Any, place: str, other: Other | None) -> list[Any]:
    return [
        to_plain(value, f"{place}[{index}]", other)
        for index, value in enumerate(values)
    ]


def _dict(value: dict[Any, Any], place: str, other: Other | None) -> Any:
    pairs = [
        (key, to_plain(item, f"{place}[{key!r}]", other)) for key, item in value.items()
    ]
    if all(type(key) is str and not key.startswith("$") for key in value):
        return dict(pairs)
    keys = [to_plain(key, f"a key of {place}", other) for key in value]
    return {"$dict": [[key, item] for key, (_, item) in zip(keys, pairs, strict=True)]}


def _array(array: Any) -> dict[str, Any]:
    # Summing an array in the other memory order may change the last bit.
    order = {"order": "F"} if array.flags.fnc else {}
    return {
        "dtype": array.dtype.str,
        "shape": list(array.shape),
        **order,
        "data": _text(array.tobytes()),
    }


def _is_readable(dtype: np.dtype[Any]) -> bool:
    """Returns True if a dtype's short name restores it, as for NumPy's own dtypes."""
    try:
        return np.dtype(dtype.str) == dtype
    except TypeError:
        return False


def from_plain(data: Any, other: Callable[[str, Any], Any] | None = None) -> Any:
    """Restores the value that `to_plain` wrote.

    Args:
        data: The result of `json.loads`.
        other: Called with an unknown tag and its content.

    Example:
        >>> from_plain(to_plain({1: (np.float32(0.5), b"x")}))
        {1: (np.float32(0.5), b'x')}
    """
    if isinstance(data, list):
        return [from_plain(item, other) for item in data]
    if not isinstance(data, dict):
        return data
    tag = next(iter(data)) if len(data) == 1 else ""
    if not tag.startswith("$"):
        return {key: from_plain(item, other) for key, item in data.items()}
    read = _READERS.get(tag)
    if read is not None:
        return read(data[tag], functools.partial(from_plain, other=other))
    if other is None:
        raise ValueError(f"There is no plain data called {tag!r}.")
    return other(tag, data[tag])


def _read_array(data: Any, _: Any) -> Any:
    content = np.frombuffer(_bytes(data["data"]), np.dtype(data["dtype"]))
    return content.reshape(data["shape"]).copy(data.get("order", "C"))


def _read_objects(data: Any, read: Callable[[Any], Any]) -> Any:
    array = np.empty(len(data["items"]), object)
    for index, item in enumerate(data["items"]):
        array[index] = read(item)
    return array.reshape(data["shape"])


def _read_namedtuple(data: Any, read: Callable[[Any], Any]) -> Any:
    """Makes a namedtuple of that class if it is loaded, else of a similar class.

    A file must not decide what is imported.
    """
    values = {name: read(item) for name, item in data["fields"].items()}
    module, _, name = data["name"].partition(":")
    known: Any = getattr(sys.modules.get(module), name, None)
    is_one = isinstance(known, type) and issubclass(known, tuple)
    if is_one and getattr(known, "_fields", None) == tuple(values):
        return known(**values)
    short = name.rpartition(".")[-1]
    # With rename=True, fields such as "_1" get the same names again.
    make: Any = collections.namedtuple(short, list(values), rename=True)  # type: ignore[misc]
    return make(*values.values())


def _read_path(data: Any, _: Any) -> Any:
    import pathlib

    return pathlib.Path(data)


_READERS: dict[str, Callable[[Any, Callable[[Any], Any]], Any]] = {
    "$array": _read_array,
    "$number": lambda data, _: _read_array(data, _)[()],
    "$objects": _read_objects,
    "$namedtuple": _read_namedtuple,
    "$tuple": lambda data, read: tuple(read(data)),
    "$dict": lambda data, read: {read(key): read(item) for key, item in data},
    "$float": lambda data, _: float(data),
    "$bytes": lambda data, _: _bytes(data),
    "$complex": lambda data, read: complex(*read(data)),
    "$path": _read_path,
}


def dumped(data: Any) -> str:
    """Returns plain data as one line of JSON."""
    import json  # here and below: few programs write or read any

    return json.dumps(data, allow_nan=False, separators=(",", ":"))


def loaded(line: str | bytes) -> Any:
    """Returns the plain data of a line of JSON."""
    import json

    return json.loads(line)


def _text(content: bytes) -> str:
    import base64

    return base64.b64encode(content).decode("ascii")


def _bytes(text: str) -> bytes:
    import base64

    return base64.b64decode(text)
