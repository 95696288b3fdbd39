"""Pickles constructors and values, and explains the errors that people hit first.

Contents of an importable module are pickled by reference. Everything else, such as a
lambda or anything made in the main script or in a notebook, is pickled by value with
cloudpickle, so no worker runs that script again. The same holds for a module that makes
a pool while it is imported: a worker that imported it would make that pool again.
Making a pool while a worker imports a module raises, because each of its workers would
make one too.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import importlib
import io
import os
import pickle
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

from envkit._internal.entry_points import own
from envkit._internal.exceptions import CLASS_MAKERS, ClassKeepingUnpickler
from envkit.errors import ConstructorError
from envkit.parallel.constructor_texts import (
    describe_argument,
    describe_constructor,
    introduced,
    kind_of,
    shortened,
)
from envkit.registry import Constructor, load, main_script_names, make
from envkit.registry import constructor as constructor_of

__all__ = [
    "dump_constructor",
    "dump_setup",
    "dump_value",
    "learn_programs",
    "load_constructor",
    "load_value",
    "refuse_while_importing",
    "work_here",
]

_MAIN = "__main__"
_LONGEST_REASON = 300
_DEEPEST_SEARCH = 6
_SEQUENCES = (list, tuple, set, frozenset)


# Modules that no worker may import, because they are the running program: the main
# script under its other names, and modules whose own code makes a pool.
_programs: set[str] = set()
# Modules whose classes have come by value, and which were not imported here. Pickle
# would import them to look the classes up.
_not_imported: set[str] = set()
# Whether this process is a worker, and whether it is a fork of its parent.
_is_worker = _is_fork = False


def work_here(*, as_fork: bool) -> None:
    """Marks this process as a worker.

    Args:
        as_fork: Whether it is a fork of its parent, and so has the main script too.
    """
    global _is_worker, _is_fork
    _is_worker, _is_fork = True, as_fork


def learn_programs() -> None:
    """Finds the modules that no worker may import, before anything is sent."""
    _programs.update(_running_modules(), main_script_names())


def dump_constructor(constructor: Callable[..., Any], index: int) -> bytes:
    """Pickles a constructor for `load_constructor` in another process.

    Args:
        constructor: A callable that makes an environment.
        index: Its place in `env_constructors`, for the message.

    Raises:
        ConstructorError: It cannot be pickled; the message says why and what helps.

    Example:
        >>> from envkit.testing import CountingEnv
        >>> payload = dump_constructor(lambda: CountingEnv(steps_per_episode=3), 0)
        >>> load_constructor(payload)().reset().observation
        array(0, dtype=int32)
    """
    try:
        pickled = _dump(constructor)
    except ConstructorError:
        raise  # It contains a name that does not exist.
    except Exception as error:
        raise _cannot_travel(constructor, index, error) from error
    return pickle.dumps((describe_constructor(constructor), pickled))


def load_constructor(payload: bytes) -> Callable[..., Any]:
    """Unpickles the constructor from the bytes of `dump_constructor`.

    Raises:
        ConstructorError: It cannot be loaded in this process.
    """
    description, pickled = pickle.loads(payload)
    try:
        constructor = load_value(pickled)
    except ConstructorError:
        raise  # A module made a pool while it was imported.
    except (Exception, SystemExit) as error:
        raise _cannot_load(description, error) from error
    return constructor  # type: ignore[no-any-return] # it was one when it was pickled


def dump_setup(setup: str | Callable[[], Any] | None) -> bytes | None:
    """Pickles the `worker_setup` for `load_value` in another process.

    Raises:
        TypeError: It cannot travel; the message says which part of it and why.
        ConstructorError: It names something that the main script lacks.
    """
    if _is_of_program(setup):
        setup = load(str(setup), str(setup))
    return dump_value(setup, "worker_setup") if setup else None


def dump_value(value: Any, what: str = "The value", *, to_fork: bool = False) -> bytes:
    """Pickles a value for `load_value` in another process.

    Args:
        value: An argument or a result of a request.
        what: A name for the value, which begins the message.
        to_fork: Whether the other process is a fork of this one.

    Raises:
        TypeError: It cannot travel; the message says which part of it and why.

    Example:
        >>> load_value(dump_value(lambda x: x + 1))(2)
        3
    """
    try:
        return _dump(value, has_main=to_fork or _is_fork)
    except ConstructorError:
        raise
    except Exception as error:
        place, part = _unsendable(value)
        subject = f"its {place} is" if place else "it is"
        raise TypeError(
            f"{what} cannot be sent to another process: {subject} {kind_of(part)}."
            f"\n\n  why    {_reason(error)}"
        ) from error


def load_value(payload: bytes) -> Any:
    """Unpickles the value from the bytes of `dump_value`."""
    return _Unpickler(io.BytesIO(payload)).load()


def refuse_while_importing(what: str) -> None:
    """Raises if this worker is importing a program that starts workers of its own.

    Args:
        what: The class about to be made, such as "ParallelPyEnvironment".

    Raises:
        ConstructorError: It is; the message says how to guard the program.
    """
    modules = _running_modules() if _is_worker else {}
    if not modules:
        return
    module = next(iter(modules.values()))
    name = os.path.basename(getattr(module, "__file__", None) or module.__name__)
    raise ConstructorError(
        f"{what} was made by {name} while a worker process was importing that module, "
        "so every worker would start workers of its own.\n\n"
        "Any one of these helps:\n"
        f'  - put what {name} does when it is run below  if __name__ == "__main__":\n'
        "  - move what makes the environments into a module of its own, which "
        f"{name} imports"
    )


def _running_modules() -> dict[str, types.ModuleType]:
    """Returns the modules whose own code is on the call stack, innermost first."""
    found: dict[str, types.ModuleType] = {}
    frame: types.FrameType | None = sys._getframe()
    while frame is not None:
        name = frame.f_globals.get("__name__", _MAIN)
        if frame.f_code.co_name == "<module>" and name != _MAIN:
            module = sys.modules.get(name)
            if module is not None and vars(module) is frame.f_globals:
                found[name] = module
        frame = frame.f_back
    return found


def _dump(value: Any, *, has_main: bool = False) -> bytes:
    """Pickles by reference where another process can find the target, else by value.

    Args:
        value: The value.
        has_main: Whether the other process has the main script too. Then it also finds
            objects there that cannot be pickled by value.
    """
    try:
        if _not_imported:
            return _dump_by_value(value)
        payload = pickle.dumps(value, protocol=5)
    except Exception:
        return _dump_by_value(value)
    # A worker has a different main module. If these bytes are the user's text and not a
    # name, cloudpickle gives the same result as pickle.
    names = [name for name in (_MAIN, *_programs) if name.encode() in payload]
    if not names:
        return payload
    try:
        return _dump_by_value(value)
    except ConstructorError:
        raise
    except Exception:
        if _MAIN in names and not has_main:
            raise
        # A module with a `__main__` guard can be imported.
        return payload


def _dump_by_value(value: Any) -> bytes:
    """Pickles a value with everything that another process could not find.

    cloudpickle takes classes and functions apart, but leaves the caches in a class to
    pickle: `functools.lru_cache`, which pickle looks for by name, and
    `functools.cached_property`, whose lock it cannot pickle. Here both are pickled,
    without the cached results.
    """
    import cloudpickle

    registered = cloudpickle.list_registry_pickle_by_value()
    modules = [
        sys.modules[name]
        for name in _programs
        if name in sys.modules and name not in registered
    ]
    file = io.BytesIO()
    try:
        for module in modules:
            cloudpickle.register_pickle_by_value(module)
        _knowing_more(cloudpickle.Pickler)(file, protocol=5).dump(value)
    finally:
        for module in modules:
            cloudpickle.unregister_pickle_by_value(module)
    return file.getvalue()


@functools.cache
def _knowing_more(base: Any) -> Any:
    class Pickler(base):  # type: ignore[misc] # cloudpickle's, imported late
        """A pickler that knows more types."""

        dispatch_table: ClassVar[Any] = collections.ChainMap(
            {
                functools._lru_cache_wrapper: _reduce_cache,
                functools.cached_property: _reduce_property,
                Constructor: _reduce_recipe,
                functools.partial: _reduce_partial,
                types.CodeType: _reduce_code(base.dispatch_table[types.CodeType]),
            },
            base.dispatch_table,
        )

        def reducer_override(self, value: Any) -> Any:
            """Takes classes apart, and adds their names if they can be looked up."""
            reduced = super().reducer_override(value)
            if isinstance(value, type) and reduced is not NotImplemented:
                make, args, *rest = reduced
                if make.__name__ in CLASS_MAKERS and _is_found(value):
                    # cloudpickle ignores its last argument.
                    return make, (*args[:-1], value.__qualname__), *rest
            return reduced

    return Pickler


# What cloudpickle writes instead of a file's name.
_NO_FILE = "<dynamic-code>"


def _reduce_code(reduce: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Returns a reducer that keeps the file's name, which tracebacks show."""

    def reduced(code: types.CodeType) -> Any:
        make, args = reduce(code)
        return make, tuple(
            code.co_filename if isinstance(arg, str) and arg == _NO_FILE else arg
            for arg in args
        )

    return reduced


def _reduce_cache(cache: Any) -> Any:
    if cache.__module__ != _MAIN and _is_found(cache):
        return cache.__qualname__
    return _cache_again, (cache.__wrapped__, cache.cache_parameters())


def _cache_again(function: Callable[..., Any], parameters: dict[str, Any]) -> Any:
    return functools.lru_cache(**parameters)(function)


def _reduce_property(found: functools.cached_property[Any]) -> Any:
    state = {name: value for name, value in vars(found).items() if name != "lock"}
    return functools.cached_property, (found.func,), state


def _reduce_recipe(recipe: Constructor) -> Any:
    make_again, (name, build, *others) = recipe.__reduce__()
    if _is_of_program(build):
        build = load(name, build)
    return make_again, (name, build, *others)


def _reduce_partial(partial: functools.partial[Any]) -> Any:
    args = partial.args
    makes = partial.func is make or partial.func is constructor_of
    if makes and args and _is_of_program(args[0]):
        args = (constructor_of(args[0]), *args[1:])
        partial = functools.partial(partial.func, *args, **partial.keywords)
    return partial.__reduce__()


def _is_of_program(target: Any) -> bool:
    """Returns True if a "module:name" target is in a module of the running program."""
    return isinstance(target, str) and target.partition(":")[0] in _programs


def _is_found(value: Any) -> bool:
    """Returns True if a class or function can be looked up by its name."""
    return _lookup(value.__module__, value.__qualname__) is value


class _Unpickler(ClassKeepingUnpickler):
    def find_class(self, module: str, name: str) -> Any:
        # Exceptions from importing a module pass unchanged.
        importlib.import_module(module)
        try:
            return super().find_class(module, name)
        except AttributeError as error:
            raise LookupError(f"there is no {name} in {module}") from error

    def _make_class(self, make: Callable[..., type], *args: Any) -> type:
        *_, tracker_id, qualname = args
        # A class has its module among the keyword arguments, an enumeration has not.
        name = args[3].get("__module__") if len(args) == 6 else args[4]
        module = sys.modules.get(name)
        if name and module is None and _is_worker:
            _not_imported.add(name)
        if qualname and not self._knows(tracker_id):
            # A fork has the same class already.
            found = _lookup(name, qualname)
            if isinstance(found, type):
                return found
        return super()._make_class(make, *args)


def _lookup(module_name: str, qualname: str) -> Any:
    """Looks up a qualified name in a module; returns `None` if there is none."""
    found: Any = sys.modules.get(module_name)
    for part in qualname.split("."):
        found = getattr(found, part, None)
    return found


def _cannot_travel(
    constructor: Callable[..., Any], index: int, error: Exception
) -> ConstructorError:
    place, part = _unsendable(constructor)
    where = f"\n  where  its {place} is {kind_of(part)}" if place else ""
    remedies = [
        'name a function in an importable module:  "my_game.envs:make_cartpole"'
    ]
    is_partial = isinstance(constructor, functools.partial)
    target = getattr(constructor, "func", None) if is_partial else constructor
    if _is_of_main(target) and not _travels(target):
        name = target.__qualname__.partition(".")[0]  # type: ignore[union-attr]  # it has one there
        remedies = [
            f"move {name} into a module of its own, which {_main_script()} imports"
        ]
    elif not is_partial:
        remedies.append("use functools.partial over a module-level class")
    if place:
        remedies.append("make what cannot be sent inside the constructor")
    remedies.append('backend="thread", if the environments release the GIL')
    return ConstructorError(
        f"env_constructors[{index}] cannot be sent to a worker process: "
        f"it is {introduced(constructor)}.\n\n"
        f"  why    {_reason(error)}{where}\n\n{_helps(remedies)}",
        envs=(index,),
    )


def _cannot_load(description: str, error: BaseException) -> ConstructorError:
    """Returns the error for a constructor that cannot be loaded in a worker."""
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
    """Returns the remedy for an error from loading a package."""
    setups = own("envkit.worker_setups")
    place = error.__traceback__
    while place is not None:
        package = place.tb_frame.f_globals.get("__name__", "").partition(".")[0]
        if package in setups:
            return f'worker_setup="{setups[package]}", before which it does not import'
        place = place.tb_next
    return "do in worker_setup=... what has to be done before it is loaded"


def _is_of_main(target: Any) -> bool:
    """Returns True if a function or class has a name in the main script."""
    is_named = isinstance(target, type | types.FunctionType)
    return is_named and target.__module__ == _MAIN and _is_found(target)


def _main_script() -> str:
    # It is "<stdin>" if the program comes through a pipe.
    file = getattr(sys.modules[_MAIN], "__file__", None) or ""
    return os.path.basename(file) if os.path.isfile(file) else "this program"


def _helps(remedies: list[str]) -> str:
    head = "This helps:" if len(remedies) == 1 else "Any one of these helps:"
    return "\n".join([head, *(f"  - {remedy}" for remedy in remedies)])


def _reason(error: BaseException) -> str:
    """Formats an error in one line."""
    text = " ".join(str(error).split())
    return shortened(
        f"{type(error).__name__}: {text}" if text else type(error).__name__,
        _LONGEST_REASON,
    )


def _unsendable(value: Any) -> tuple[str, Any]:
    """Finds the smallest part of a value that cannot be pickled, and where it is."""
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
    """Yields the objects that pickling a value would include, each with a name."""
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
    """Yields a function's captured variables, globals and defaults."""
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    for name, cell in cells:
        with contextlib.suppress(ValueError):  # The variable is not assigned yet.
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
