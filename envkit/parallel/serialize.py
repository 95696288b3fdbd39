"""Constructors and values as bytes, and the errors people meet first.

What lives in an importable module travels by reference. What does not, such as a
lambda or anything made in the program's main script or in a notebook, travels by value
through cloudpickle, so a worker need not run that script again. Only a constructor of
the main script that cannot travel by value, because it uses a lock or the like, makes
the worker load the script, under the name `__envkit_main__`.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import importlib
import io
import logging
import os
import pickle
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, NamedTuple

from envkit.errors import ConstructorError
from envkit.parallel.constructor_texts import (
    describe_argument,
    describe_constructor,
    introduced,
    is_lambda,
    kind_of,
    shortened,
)

__all__ = [
    "describe_constructor",
    "dump_constructor",
    "dump_value",
    "load_constructor",
    "load_value",
    "loading_script",
    "refuse_while_loading_script",
]

_logger = logging.getLogger(__name__)

_MAIN = "__main__"
_SCRIPT_NAME = "__envkit_main__"
_LONGEST_REASON = 300
_DEEPEST_SEARCH = 6
_SEQUENCES = (list, tuple, set, frozenset)
# What has to be done in a worker before it can import a package.
_SETUPS = {"pysc2": "envkit.adapters.pysc2:prepare"}


class _Script(NamedTuple):
    """Where a constructor is found that only its own script can make."""

    path: str
    # What `python -m` was given, else empty.
    module: str
    qualname: str
    # The pickled arguments of a functools.partial, if it is one.
    arguments: bytes | None
    # Why it could not travel by value.
    why: str


class _Loaded(NamedTuple):
    """What loading a script gave: its names, or why there are none."""

    names: dict[str, Any]
    error: BaseException | None


# A script is run once in a process, whatever comes of it.
_scripts: dict[str, _Loaded] = {}
# The scripts that are being loaded: path, and the name that is wanted from it.
_loading: list[_Script] = []


def dump_constructor(constructor: Callable[..., Any], index: int) -> bytes:
    """Turns a constructor into bytes for `load_constructor` in another process.

    Args:
        constructor: Something to call that makes an environment.
        index: Its place in `env_constructors`, for the message.

    Raises:
        ConstructorError: It cannot travel; the message says why and what helps.

    Example:
        >>> from envkit.testing import CountingEnv
        >>> payload = dump_constructor(lambda: CountingEnv(steps_per_episode=3), 0)
        >>> load_constructor(payload)().reset().observation
        array(0, dtype=int32)
    """
    script, pickled = None, b""
    try:
        pickled = _dump(constructor)
    except Exception as error:
        script = _script_of(constructor, error)
        if script is None:
            raise _cannot_travel(constructor, index, error) from error
    return pickle.dumps(
        (describe_constructor(constructor), pickled, script and tuple(script))
    )


def load_constructor(payload: bytes) -> Callable[..., Any]:
    """Turns the bytes of `dump_constructor` into the constructor again.

    Raises:
        ConstructorError: It cannot be loaded in this process.
    """
    description, pickled, script = pickle.loads(payload)
    try:
        constructor = _from_script(_Script(*script)) if script else load_value(pickled)
    except ConstructorError:
        raise  # A pool that a script made while it was loaded was refused.
    except (Exception, SystemExit) as error:
        raise _cannot_load(description, error) from error
    return constructor  # It was one when it left.


def dump_value(value: Any, what: str = "The value") -> bytes:
    """Turns a value into bytes for `load_value` in another process.

    Args:
        value: An argument or a result of a request.
        what: What the value is, as the message begins.

    Raises:
        TypeError: It cannot travel; the message says which part of it and why.

    Example:
        >>> load_value(dump_value(lambda x: x + 1))(2)
        3
    """
    try:
        return _dump(value)
    except Exception as error:
        place, part = _unsendable(value)
        subject = f"its {place} is" if place else "it is"
        remedy = (
            "\n\npip install cloudpickle, which can send more."
            * _lacks_cloudpickle(error)
        )
        raise TypeError(
            f"{what} cannot be sent to another process: {subject} {kind_of(part)}."
            f"\n\n  why    {_reason(error)}{remedy}"
        ) from error


def load_value(payload: bytes) -> Any:
    """Turns the bytes of `dump_value` into the value again."""
    return _Unpickler(io.BytesIO(payload)).load()


def loading_script() -> bool:
    """Whether this process is loading the parent's script to find a constructor."""
    return bool(_loading)


def refuse_while_loading_script(what: str) -> None:
    """Raises if a script that a worker is loading goes on to make workers itself.

    Args:
        what: What is about to be made, such as "ParallelPyEnvironment".

    Raises:
        ConstructorError: A script is being loaded; the message says how to guard it.
    """
    if not _loading:
        return
    script = _loading[-1]
    name = os.path.basename(script.path)
    raise ConstructorError(
        f"{what} was made by {name} while a worker process was loading that script, so "
        "every worker would start workers of its own.\n\n"
        f"  why    the worker needs {script.qualname}, which cannot be sent by value: "
        f"{script.why}\n\n"
        "Any one of these helps:\n"
        f'  - put what {name} does when it is run below  if __name__ == "__main__":\n'
        f"  - move {script.qualname} into a module of its own, which {name} imports"
    )


def _dump(value: Any) -> bytes:
    """Pickles by reference where that reaches another process, else by value."""
    try:
        payload = pickle.dumps(value, protocol=5)
    except Exception:
        return _dump_by_value(value)
    # The main module of a worker is another one. Should these bytes be only somebody's
    # text, cloudpickle does what pickle did.
    return _dump_by_value(value) if _MAIN.encode() in payload else payload


def _dump_by_value(value: Any) -> bytes:
    """Turns a value into bytes that hold whatever another process would not find.

    cloudpickle takes classes and functions apart. What remembers results in a class, as
    `functools.lru_cache` and `functools.cached_property` do, it leaves to pickle, which
    looks for the one by name and cannot take the other's lock. Here both travel,
    without what they remember.
    """
    import cloudpickle

    file = io.BytesIO()
    _knowing_more(cloudpickle.Pickler)(file, protocol=5).dump(value)
    return file.getvalue()


@functools.cache
def _knowing_more(base: Any) -> Any:
    class Pickler(base):  # type: ignore[misc]  # cloudpickle's, which comes late
        """A pickler that knows more types."""

        dispatch_table: ClassVar[Any] = collections.ChainMap(
            {
                functools._lru_cache_wrapper: _reduce_cache,
                functools.cached_property: _reduce_property,
            },
            base.dispatch_table,
        )

    return Pickler


def _reduce_cache(cache: Any) -> Any:
    if _is_found(cache):
        return cache.__qualname__
    return _cache_again, (cache.__wrapped__, cache.cache_parameters())


def _cache_again(function: Callable[..., Any], parameters: dict[str, Any]) -> Any:
    return functools.lru_cache(**parameters)(function)


def _reduce_property(found: functools.cached_property[Any]) -> Any:
    state = {name: value for name, value in vars(found).items() if name != "lock"}
    return functools.cached_property, (found.func,), state


def _is_found(cache: Any) -> bool:
    """Says whether another process finds a function by its name."""
    if cache.__module__ == "__main__":
        return False
    found: Any = sys.modules.get(cache.__module__)
    for part in cache.__qualname__.split("."):
        found = getattr(found, part, None)
    return found is cache


class _Unpickler(pickle.Unpickler):
    """Unpickles, and leaves classes alone that are here already.

    cloudpickle knows again a class that travelled by value before, also on its way
    back, but then overwrites all its attributes with those of the other process: a
    value that a worker returns would change the methods of the parent's class.
    """

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        self._new: set[type] = set()

    def find_class(self, module: str, name: str) -> Any:
        """Looks a global up; those that make classes are wrapped.

        Raises:
            LookupError: The module is there, but not the name.
        """
        # What importing a module raises is its own business, and passes as it is.
        importlib.import_module(module)
        try:
            found = super().find_class(module, name)
        except AttributeError as error:
            raise LookupError(f"there is no {name} in {module}") from error
        if module == "cloudpickle.cloudpickle":
            if name in {"_make_skeleton_class", "_make_skeleton_enum"}:
                return functools.partial(self._make_class, found)
            if name == "_class_setstate":
                return functools.partial(self._fill_class, found)
        return found

    def _make_class(self, make: Callable[..., type], *args: Any) -> type:
        from cloudpickle import cloudpickle

        tracker_id = args[-2]
        known = getattr(cloudpickle, "_DYNAMIC_CLASS_TRACKER_BY_ID", {})
        is_here = tracker_id in known
        made = make(*args)
        if not is_here:
            self._new.add(made)
        return made

    def _fill_class(self, fill: Callable[..., type], made: type, state: Any) -> type:
        return fill(made, state) if made in self._new else made


def _script_of(constructor: Callable[..., Any], error: Exception) -> _Script | None:
    """Finds a constructor in the main script, if it has a name there."""
    target, arguments = constructor, None
    if isinstance(constructor, functools.partial):
        target = constructor.func
        try:
            arguments = _dump((constructor.args, constructor.keywords))
        except Exception:
            return None
    main = sys.modules[_MAIN]
    # It is "<stdin>" when the program comes through a pipe.
    path = os.path.abspath(getattr(main, "__file__", None) or "")
    qualname = getattr(target, "__qualname__", None)
    if getattr(target, "__module__", None) != _MAIN or not os.path.isfile(path):
        return None
    try:
        if _find(vars(main), str(qualname)) != target:
            return None
    except LookupError:
        return None
    spec = getattr(main, "__spec__", None)
    module = spec.name if spec is not None and spec.name != _MAIN else ""
    return _Script(path, module, str(qualname), arguments, _reason(error))


def _from_script(script: _Script) -> Callable[..., Any]:
    loaded = _scripts.get(script.path)
    if loaded is None:
        _logger.warning(
            "Loading %s in this worker: %s is defined in it and cannot be sent by "
            "value (%s).",
            script.path,
            script.qualname,
            script.why,
        )
        loaded = _scripts[script.path] = _run(script)
    if loaded.error is not None:
        raise loaded.error
    target = _find(loaded.names, script.qualname)
    if script.arguments is None:
        return target  # type: ignore[no-any-return]
    args, keywords = load_value(script.arguments)
    return functools.partial(target, *args, **keywords)


def _run(script: _Script) -> _Loaded:
    import runpy

    _loading.append(script)
    try:
        if script.module:
            names = runpy.run_module(
                script.module, run_name=_SCRIPT_NAME, alter_sys=True
            )
        else:
            names = runpy.run_path(script.path, run_name=_SCRIPT_NAME)
    except (Exception, SystemExit) as error:
        return _Loaded({}, error)
    finally:
        _loading.pop()
    return _Loaded(names, None)


def _find(names: dict[str, Any], qualname: str) -> Any:
    """Looks up a qualified name.

    Raises:
        LookupError: It is not there.
    """
    first, *others = qualname.split(".")
    try:
        return functools.reduce(getattr, others, names[first])
    except (KeyError, AttributeError) as error:
        raise LookupError(
            f'{qualname} is made below  if __name__ == "__main__":  or when the script '
            "runs, not when it is loaded"
        ) from error


def _cannot_travel(
    constructor: Callable[..., Any], index: int, error: Exception
) -> ConstructorError:
    place, part = _unsendable(constructor)
    where = f"\n  where  its {place} is {kind_of(part)}" if place else ""
    remedies = [
        'name a function in an importable module:  "my_game.envs:make_cartpole"'
    ]
    if not isinstance(constructor, functools.partial):
        remedies.append("use functools.partial over a module-level class")
    if place:
        remedies.append("make what cannot be sent inside the constructor")
    if _lacks_cloudpickle(error):
        kind = "lambdas" if is_lambda(constructor) else "what pickle cannot"
        remedies.append(f"pip install cloudpickle, which can send {kind}")
    remedies.append('backend="thread", if the environments release the GIL')
    return ConstructorError(
        f"env_constructors[{index}] cannot be sent to a worker process: "
        f"it is {introduced(constructor)}.\n\n"
        f"  why    {_reason(error)}{where}\n\n{_helps(remedies)}",
        envs=(index,),
    )


def _cannot_load(description: str, error: BaseException) -> ConstructorError:
    """Says why a worker cannot make a constructor out of what it was sent."""
    why = f"  why    {_reason(error)}\n\n"
    if isinstance(error, ModuleNotFoundError) and error.name:
        what = f"there is no module {error.name!r} to import"
        remedies = [
            "install the package, or put its folder on sys.path before making the "
            "environments",
            "do in worker_setup=... what the program did to make it importable",
        ]
    elif type(error) is LookupError:
        what, why = str(error), ""
        remedies = [
            "define it at the top level of its module",
            "define it in worker_setup=... as the program did",
        ]
    else:
        what = f"{type(error).__name__} was raised"
        remedies = [_setup_for(error)]
    return ConstructorError(
        f"{description} could not be loaded in the worker process: {what}.\n\n"
        f"{why}"
        "A worker has the program's sys.path, but sees nothing of what the program has "
        "done: no registrations, no modules or attributes made at run time.\n"
        f"{_helps(remedies)}"
    )


def _setup_for(error: BaseException) -> str:
    """Says what to do before that is loaded at which an error was raised."""
    place = error.__traceback__
    while place is not None:
        package = place.tb_frame.f_globals.get("__name__", "").partition(".")[0]
        if package in _SETUPS:
            return f'worker_setup="{_SETUPS[package]}", before which it does not import'
        place = place.tb_next
    return "do in worker_setup=... what has to be done before it is loaded"


def _helps(remedies: list[str]) -> str:
    head = "This helps:" if len(remedies) == 1 else "Any one of these helps:"
    return "\n".join([head, *(f"  - {remedy}" for remedy in remedies)])


def _lacks_cloudpickle(error: BaseException) -> bool:
    return isinstance(error, ImportError) and error.name == "cloudpickle"


def _reason(error: BaseException) -> str:
    """Returns an error in one line; where cloudpickle is missing, what pickle said."""
    if _lacks_cloudpickle(error):
        if error.__context__ is None:
            return "what __main__ defines is not found in another process"
        error = error.__context__
    text = " ".join(str(error).split())
    return shortened(
        f"{type(error).__name__}: {text}" if text else type(error).__name__,
        _LONGEST_REASON,
    )


def _unsendable(value: Any) -> tuple[str, Any]:
    """Finds the smallest part of a value that cannot travel, and where it is."""
    labels: list[str] = []
    seen = {id(value)}
    while len(labels) < _DEEPEST_SEARCH:
        for label, part in _parts(value):
            if id(part) not in seen and not _travels(part):
                seen.add(id(part))
                labels.append(label)
                value = part
                break
        else:
            break
    return ", ".join(labels), value


def _travels(value: Any) -> bool:
    try:
        _dump(value)
    except Exception:
        return False
    return True


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    """Yields what a value would take along, each with a name."""
    if isinstance(value, functools.partial):
        yield "function", value.func
        yield from ((f"argument {at}", part) for at, part in enumerate(value.args))
        yield from ((f"argument {key}", part) for key, part in value.keywords.items())
    elif isinstance(value, types.FunctionType):
        yield from _variables(value)
    elif isinstance(value, types.MethodType):
        yield "object", value.__self__
    elif isinstance(value, dict):
        yield from (
            (f"key {describe_argument(key)}", part) for key, part in value.items()
        )
    elif isinstance(value, _SEQUENCES):
        yield from ((f"element {at}", part) for at, part in enumerate(value))
    elif not isinstance(value, types.ModuleType):
        yield from (
            (f"attribute {name}", part)
            for name, part in list(getattr(value, "__dict__", {}).items())
            if not name.startswith("__")
        )


def _variables(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """Yields what a function refers to: captured variables, globals and defaults."""
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    for name, cell in cells:
        with contextlib.suppress(ValueError):  # It is not assigned yet.
            yield f"variable {name}", cell.cell_contents
    codes = [function.__code__]
    for code in codes:
        codes.extend(
            part for part in code.co_consts if isinstance(part, types.CodeType)
        )
        for name in code.co_names:
            if name in function.__globals__:
                yield f"variable {name}", function.__globals__[name]
    for part in (
        *(function.__defaults__ or ()),
        *(function.__kwdefaults__ or {}).values(),
    ):
        yield "default argument", part
