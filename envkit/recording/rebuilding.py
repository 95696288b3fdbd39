"""Makes an environment of what its provenance says."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterator, Mapping
from typing import Any

from envkit import targets
from envkit.constructors import built_by, constructor
from envkit.errors import ConstructorError, RecordingError
from envkit.plain_data import from_plain
from envkit.py_environment import PyEnvironment
from envkit.recording.layout import reading
from envkit.specs.validation import describe

__all__ = ["Rebuilt", "check_keys", "check_provenance", "foreign_names", "rebuilt"]

_POOLS = {
    "envkit.parallel.parallel_py_environment:ParallelPyEnvironment",
    "envkit.parallel.async_parallel_py_environment:AsyncParallelPyEnvironment",
}
_BATCH = "envkit.batched_py_environment:BatchedPyEnvironment"
# What these wrap does the same without them: a pool in lockstep, for one. Others write
# files, or wait.
_LEFT_OUT = {
    "envkit.blocking:Blocking",
    "envkit.realtime.logger:Logger",
    "envkit.realtime.throttle:Throttle",
    "envkit.realtime.timer:Timer",
    "envkit.recording.record:Record",
    "envkit.wrappers.profiling:PerformanceProfiler",
    "envkit.wrappers.video.record_video:RecordVideo",
}
_REAL_TIME = "envkit.realtime.environment:RealTimeEnvironment"
# Where those of envkit's environments are that are made of plain values alone, and its
# wrappers, which are given the environment.
_OWN_ENVIRONMENTS = (
    "envkit.envs:",
    "envkit.envs.",
    "envkit.testing:",
    "envkit.testing.envs:",
)
_OWN_WRAPPERS = (
    "envkit.wrappers:",
    "envkit.wrappers.",
    "envkit.realtime.environment:",
)
# A pool of more is a slip of the pen, and would take all memory there is.
_MOST_ENVIRONMENTS = 100_000


# What there must be, and of which type.
_Type = tuple[tuple[type, ...], str]
_NONE = type(None)
_TEXT: _Type = ((str,), "a string")
_DICTIONARY: _Type = ((dict,), "a dictionary")
_RECIPE: dict[str, _Type] = {
    "id": _TEXT,
    "version": ((int, _NONE), "an integer, or null"),
    "class": ((str, _NONE), "a string, or null"),
    "arguments": ((dict, _NONE), "a dictionary, or null"),
    "seed": ((int, list, dict, _NONE), "an integer, a list, or null"),
    "wrappers": ((list,), "a list"),
}
_AROUND: dict[str, _Type] = {
    "envkit": _TEXT,
    "packages": _DICTIONARY,
    "python": _TEXT,
    "machine": _DICTIONARY,
}


def check_provenance(known: Any, subject: str = "The provenance") -> None:
    """Raises unless a provenance has the keys that it must have, of their types.

    Args:
        known: What `provenance()` has returned, or a file that says so.
        subject: What it is called, as the sentence of an error begins.

    Raises:
        RecordingError: A key is missing, or its value is of another type.

    Example:
        >>> from envkit import make
        >>> check_provenance(make("Catch").provenance())
        >>> check_provenance({"id": "Catch-v1"})
        Traceback (most recent call last):
        envkit.errors.RecordingError: The provenance has no key 'version', which ...
    """
    with reading(subject):
        check_keys(known, {**_RECIPE, **_AROUND}, subject)
        for key, version in known["packages"].items():
            _check_type(version, _TEXT, subject, f"['packages'][{key!r}]")
        count = _check_recipe(known, subject, "")
    if count > _MOST_ENVIRONMENTS:
        raise RecordingError(
            f"{subject} has {count} environments; there must be at most "
            f"{_MOST_ENVIRONMENTS}."
        )


def _check_recipe(known: Any, subject: str, place: str) -> int:
    """Returns of how many environments it is."""
    check_keys(known, _RECIPE, subject, place)
    for index, layer in enumerate(known["wrappers"]):
        at = f"{place}['wrappers'][{index}]"
        check_keys(layer, {"class": _TEXT, "arguments": _DICTIONARY}, subject, at)
    if "environments" not in known:
        return 1
    at = f"{place}['environments']"
    _check_type(known["environments"], ((list,), "a list"), subject, at)
    total = 0
    for index, recipe in enumerate(known["environments"]):
        here, count = f"{at}[{index}]", {"count": ((int,), "an integer")}
        check_keys(recipe, count, subject, here)
        if recipe["count"] < 1:
            raise RecordingError(
                f"{subject} has {recipe['count']} at {here}['count'], which must be at "
                "least 1."
            )
        total += recipe["count"] * _check_recipe(recipe, subject, here)
    return total


def foreign_names(known: dict[str, Any]) -> list[str]:
    """Returns what making an environment again imports and calls besides envkit's own.

    Envkit's own are its environments and wrappers, and pools of them.

    Args:
        known: A provenance that has passed `check_provenance`.

    Example:
        >>> from envkit import constructor, make
        >>> foreign_names(make("Catch").provenance())
        []
        >>> known = constructor("my_game:make_board", size=3).plain_recipe()
        >>> foreign_names(known)
        ['my_game:make_board']
    """
    with reading("The provenance"):
        return list(dict.fromkeys(_names_in(known)))


def _names_in(recipe: dict[str, Any]) -> Iterator[str]:
    if "environments" in recipe:
        for one in recipe["environments"]:
            yield from _names_in(one)
    else:
        yield from _name_of_id(recipe["id"])
    yield from _names_of_values(recipe["arguments"])
    for layer in recipe["wrappers"]:
        name = layer["class"]
        if name not in _LEFT_OUT and not _is_nowhere(name):
            if not _is_own(name, _OWN_WRAPPERS):
                yield name
            yield from _names_of_values(layer["arguments"])


def _name_of_id(name: str) -> Iterator[str]:
    target = name if ":" in name else built_by(name)
    is_one = target is not None and not _is_nowhere(name)
    if is_one and not _is_own(target, _OWN_ENVIRONMENTS):
        yield name


def _names_of_values(data: Any) -> Iterator[str]:
    """Yields what arguments name."""
    if isinstance(data, list):
        for item in data:
            yield from _names_of_values(item)
    elif isinstance(data, dict):
        for key, item in data.items():
            if key == "$name":
                yield str(item)
            elif key == "$constructor" and isinstance(item, dict):
                yield from _name_of_id(str(item.get("id")))
            yield from _names_of_values(item)


def _is_own(target: Any, places: tuple[str, ...]) -> bool:
    """Says whether it is a class of envkit's own, in one of some places."""
    if not isinstance(target, str) or not target.startswith(places):
        return False
    try:
        found: Any = targets.load(target, target)
    except Exception:  # It is not there, which making it will say.
        return False
    # Through a module one gets at what it imports, too.
    return (
        isinstance(found, type)
        and issubclass(found, PyEnvironment)
        and f"{found.__module__}:".startswith(places)
    )


def _is_nowhere(name: str) -> bool:
    """Says whether no other program can import it."""
    return "<" in name or name.startswith(("__main__:", "__mp_main__:"))


def check_keys(
    known: Any, types: Mapping[str, _Type], subject: str, place: str = ""
) -> None:
    """Raises a `RecordingError` unless a dictionary has keys, each of its type."""
    _check_type(known, _DICTIONARY, subject, place)
    for key, expected in types.items():
        if key not in known:
            where = f" at {place}" if place else ""
            raise RecordingError(
                f"{subject} has no key {key!r}{where}, which must be {expected[1]}."
            )
        _check_type(known[key], expected, subject, f"{place}[{key!r}]")


def _check_type(value: Any, expected: _Type, subject: str, place: str) -> None:
    kinds, text = expected
    is_flag = isinstance(value, bool)
    if not isinstance(value, kinds) or (is_flag and bool not in kinds):
        where = f" at {place}" if place else ""
        raise RecordingError(
            f"{subject} has {describe(value)}{where}, which must be {text}."
        )


class Rebuilt:
    """Makes an environment, and notes what had to be taken for granted.

    Attributes:
        assumed: Sentences about what is not known.
    """

    def __init__(self) -> None:
        self.assumed: list[str] = []

    def make(self, recipe: dict[str, Any]) -> Any:
        """Makes an environment of a recipe, seeded as it was."""
        env = self._base(recipe)
        for layer in reversed(recipe["wrappers"]):
            env = self._wrapped(env, layer)
        if recipe["seed"] is not None:
            env.seed(_read(recipe["seed"], f"The seed of {recipe['id']}"))
        return env

    def _base(self, recipe: dict[str, Any]) -> Any:
        if "environments" in recipe:
            return self._batch(recipe)
        arguments = recipe["arguments"]
        if arguments is None:
            self.assumed.append(
                f"The arguments of {recipe['id']} are not known; none were given."
            )
            arguments = {}
        given = self._values(arguments, recipe["id"])
        return self._made(recipe["id"], given, recipe["arguments"] is not None)

    def _made(self, name: str, arguments: dict[str, Any], are_known: bool) -> Any:
        if _is_nowhere(name):
            raise RecordingError(
                f"It was made by {name}, which no other program can import. Name what "
                "makes it with --env, as 'module:function'."
            )
        with reading(name, "cannot be made again"):
            try:
                return constructor(name, **arguments)()
            except TypeError as error:
                if are_known:
                    raise
                raise RecordingError(
                    f"{name} cannot be made again, as the recording does not know with "
                    f"which arguments: {error}. Name what makes it with --env, as "
                    "'module:function'."
                ) from error

    def _batch(self, recipe: dict[str, Any]) -> Any:
        recipes = [one for one in recipe["environments"] for _ in range(one["count"])]
        if recipe["class"] == _BATCH:
            batch = targets.load(_BATCH, _BATCH)
            specs = (recipe["arguments"] or {}).get("specs", "equal")
            envs = [self.make(one) for one in recipes]
            return batch(envs, multithreading=False, specs=specs)
        if recipe["class"] not in _POOLS:
            raise RecordingError(
                f"It was a {recipe['class']}, which is made of other environments in a "
                "way that is not known. Name what makes it with --env."
            )
        arguments = self._values(recipe["arguments"] or {}, recipe["id"])
        # Others, such as worker_setup, may import and call anything.
        for name in arguments.keys() - {"autoreset", "specs"}:
            raise RecordingError(
                f"{recipe['id']} was given {name!r}, which no recording notes of a "
                "pool. Name what makes it with --env, as 'module:function'."
            )
        # On every backend it is the same; and this one starts no processes.
        pool = targets.load("pool", sorted(_POOLS)[1])
        return pool(
            [functools.partial(self.make, one) for one in recipes],
            backend="inline",
            **arguments,
        )

    def _wrapped(self, env: Any, layer: dict[str, Any]) -> Any:
        name = layer["class"]
        if name in _LEFT_OUT:
            return env
        if _is_nowhere(name):
            raise RecordingError(
                f"It was wrapped in {name}, which no other program can import. Name "
                "what makes it with --env, as 'module:function'."
            )
        arguments = self._values(layer["arguments"], name)
        if name == _REAL_TIME and arguments.get("host") != "virtual":
            raise RecordingError(
                "It ran in real time, which does not come again. Recordings of "
                "host='virtual' can be checked."
            )
        with reading(name, "cannot be made again"):
            wrapper = targets.load(name, name)
            known = list(inspect.signature(wrapper).parameters)[1:]
            unknown = [
                parameter
                for parameter in known
                if parameter not in arguments and parameter != "handle_auto_reset"
            ]
            if unknown:
                self.assumed.append(
                    f"Of the arguments of {name}, {', '.join(unknown)} are not known; "
                    "none were given."
                )
            made = wrapper(
                env, **{key: arguments[key] for key in arguments if key in known}
            )
            if not hasattr(made, "time_step_spec"):
                raise ConstructorError.no_environment(name, made)
            return made

    def _values(self, arguments: dict[str, Any], owner: str) -> dict[str, Any]:
        def read(tag: str, data: Any) -> Any:
            if tag == "$name":
                return targets.load(data, data)
            if tag == "$constructor":
                made = self._values(data["arguments"] or {}, data["id"])
                return constructor(data["id"], **made)
            if tag == "$partial":
                function, args, kwargs = (from_plain(part, read) for part in data)
                return functools.partial(function, *args, **kwargs)
            raise RecordingError(
                f"{owner} was given {data}, which the recording does not hold. Name "
                "what makes it with --env, as 'module:function'."
            )

        return {
            key: _read(item, f"The argument {key!r} of {owner}", read)
            for key, item in arguments.items()
        }


def _read(data: Any, what: str, other: Any = None) -> Any:
    with reading(what):
        return from_plain(data, other)


def rebuilt(provenance: dict[str, Any]) -> tuple[Any, list[str]]:
    """Makes an environment as it was, and notes what had to be taken for granted.

    It imports and runs what the provenance names.

    Args:
        provenance: What `provenance()` has returned, of a `Recording` for example.

    Returns:
        The environment, seeded as it was, and sentences about what is not known.

    Raises:
        RecordingError: The provenance lacks something, or its environment cannot be
            made again.

    Example:
        >>> from envkit import make
        >>> env, assumed = rebuilt(make("Catch", rows=5, seed=7).provenance())
        >>> env.provenance()["arguments"], assumed
        ({'rows': 5, 'seed': 7}, [])
    """
    check_provenance(provenance)
    builder = Rebuilt()
    with reading(provenance["id"], "cannot be made again"):
        return builder.make(provenance), builder.assumed
