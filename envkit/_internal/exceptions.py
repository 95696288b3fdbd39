"""Copies exceptions from their parts, without calling a constructor.

Python pickles an exception as its class and its `args`, and calls the class with them
on arrival. That fails if a constructor expects anything else. Here an exception is its
class, its `args` and its attributes, and its built-in base class makes the copy, so an
`OSError` keeps its `errno`. Values in `__slots__` and in C code of other packages are
lost.
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import io
import pickle
import sys
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias, TypeVar

__all__ = [
    "CLASS_MAKERS",
    "ClassKeepingUnpickler",
    "both",
    "caused_by",
    "cut",
    "halves",
    "made_from",
    "packed",
    "rebuilt",
    "text_of",
    "unpacked",
    "with_text",
]

E = TypeVar("E", bound=BaseException)
Ours = TypeVar("Ours", bound=Exception)

# Since Python 3.11.
EXCEPTION_GROUP: Any = getattr(builtins, "BaseExceptionGroup", ())
# The functions with which cloudpickle makes classes. Their last two arguments are the
# number by which it recognises a class, and an unused one.
CLASS_MAKERS = frozenset({"_make_skeleton_class", "_make_skeleton_enum"})

# Classes that Python itself catches or prints specially: as one of these, an error of
# ours would silently end a loop over environments, or be shown without its message.
NEVER_BOTH = (StopIteration, StopAsyncIteration, SyntaxError)

# Parts of an exception beyond these numbers of bytes and characters are dropped.
_MOST_BYTES = 1 << 20
_MOST_OF_ONE = 1 << 16
_MOST_CHARACTERS = 10_000

_Parts: TypeAlias = tuple[tuple[Any, ...], dict[str, Any]]


# The values hold the keys, and live as long as there is an instance.
_classes_of_both: weakref.WeakValueDictionary[tuple[type, type], type] = (
    weakref.WeakValueDictionary()
)


def both(ours: type[Ours], theirs: type[BaseException]) -> type[Ours]:
    """Returns a class that combines two classes of exceptions, or just `ours`.

    It is just `ours` if the other class does not derive from `Exception` (an error of
    ours must not end the program as `SystemExit` does), if Python would handle it
    specially, or if the classes cannot be combined.

    Example:
        >>> both(RuntimeError, KeyError)
        <class 'RuntimeError[KeyError]'>
    """
    if theirs in ours.__mro__ or not issubclass(theirs, Exception):
        return ours
    if issubclass(theirs, ours):
        return theirs
    if issubclass(theirs, NEVER_BOTH):
        return ours
    if theirs.__bases__[0] is _Unannounced:  # made by `with_text`
        theirs = theirs.__bases__[1]
    known = _classes_of_both.get((ours, theirs))
    if known is None:
        name = f"{ours.__name__}[{theirs.__name__}]"
        body = {"__module__": ours.__module__, "__doc__": ours.__doc__}
        bases = (_Unannounced, ours, theirs)
        # A metaclass may refuse with any error, and only C can make a layout of C.
        try:
            known = types.new_class(name, bases, None, lambda own: own.update(body))
            is_group = issubclass(known, EXCEPTION_GROUP)
            _blank(known, *(("", [Exception()]) if is_group else ()))
            _classes_of_both[ours, theirs] = known
        except Exception:
            return ours
    return known


def halves(kind: type) -> tuple[type, type | None]:
    """Splits the result of `both`: ours and theirs, or just the class itself.

    Example:
        >>> halves(both(RuntimeError, KeyError))
        (<class 'RuntimeError'>, <class 'KeyError'>)
        >>> halves(RuntimeError)
        (<class 'RuntimeError'>, None)
    """
    if _Unannounced not in kind.__bases__:
        return kind, None
    _, ours, theirs = kind.__bases__
    return ours, theirs


def made_from(error: BaseException) -> tuple[Any, ...]:
    """Returns the arguments with which the built-in class makes another exception.

    Example:
        >>> made_from(FileNotFoundError(2, "No such file", "level.xml"))
        (2, 'No such file', 'level.xml')
    """
    if isinstance(error, EXCEPTION_GROUP):
        return error.message, error.exceptions
    arguments: tuple[Any, ...] = _maker(type(error)).__reduce__(error)[1]
    return arguments


def rebuilt(
    kind: type[E],
    args: tuple[Any, ...],
    attributes: dict[str, Any],
    made_from: tuple[Any, ...] = (),
) -> E:
    """Makes an exception of a class without calling its constructor.

    Args:
        kind: The class.
        args: Its `args`.
        attributes: Its attributes.
        made_from: The arguments of the built-in class; see `made_from`.

    Raises:
        TypeError: C code of another package defines the memory layout of this class.
    """
    error = _blank(kind, *made_from)
    _fill(error, (args, attributes))
    return error


def caused_by(error: E, cause: BaseException | None) -> E:
    """Sets an exception's cause, if there is one, and returns the exception."""
    # Setting it to None would hide the context. A user's class may refuse to have
    # attributes set.
    if cause is not None:
        BaseException.__setattr__(error, "__cause__", cause)
    return error


def with_text(error: BaseException, text: str) -> BaseException:
    """Returns an exception that shows this text instead of what its class computes.

    A class may compute its text from `__slots__`, which are lost.

    Example:
        >>> str(with_text(KeyError("level"), "no such level"))
        'no such level'
    """
    if text_of(error) == text or len(text) > _MOST_CHARACTERS:
        return error
    kind = type(error)

    def again(self: BaseException) -> Any:
        plain = rebuilt(kind, self.args, vars(self), made_from(self))
        return with_text, (plain, text)

    body = {
        "__module__": kind.__module__,
        "__qualname__": kind.__qualname__,
        "__str__": lambda self: text,
        "__reduce__": again,
    }
    # A class may refuse to have subclasses.
    try:
        bases = (_Unannounced, kind)
        shown = types.new_class(
            kind.__name__, bases, None, lambda own: own.update(body)
        )
        return rebuilt(shown, error.args, vars(error), made_from(error))
    except Exception:
        return error


def text_of(error: BaseException) -> str:
    """Returns the text of an exception, shortened if long."""
    try:
        return cut(str(error))
    except Exception:
        return f"(its message cannot be shown: str({type(error).__qualname__}) raised)"


def packed(value: object) -> bytes | None:
    """Pickles an exception, or anything else; `None` if that is impossible.

    Parts of an exception that cannot be pickled, or are too large, are dropped: the
    attribute is missing on arrival, and the argument is the beginning of its `repr`.
    """
    whole = _pickled(value, whole=True)
    if whole is not None and len(whole) <= _MOST_BYTES:
        return whole
    trimmed = _pickled(value, whole=False)
    return trimmed if isinstance(value, BaseException) else whole or trimmed


def cut(text: str) -> str:
    """Shortens a long text, and adds its length.

    Example:
        >>> cut("no room")
        'no room'
        >>> cut("x" * 60_000_000)[-36:]
        'xxxxx … (60,000,000 characters long)'
    """
    if len(text) <= _MOST_CHARACTERS:
        return text
    return f"{text[:_MOST_CHARACTERS]} … ({len(text):,} characters long)"


def unpacked(data: bytes | None, default: Any = None) -> Any:
    """Returns the value that was packed, or `default` if it cannot be loaded here.

    It cannot if the module of its class is not imported here. No `except` can name such
    a class, and importing a simulator only to report that it failed elsewhere takes
    long and may have side effects.
    """
    if data is None:
        return default
    try:
        return _Unpickler(io.BytesIO(data)).load()
    except Exception:
        return default


class _Unannounced:
    """Hides a class of ours from `__init_subclass__` of a user's class.

    That may register subclasses, and ours would replace the user's.
    """

    __slots__ = ()

    def __init_subclass__(cls) -> None:
        pass


def _maker(kind: type) -> Any:
    """Returns the built-in class that defines the memory layout of an exception."""
    maker: Any = kind
    while getattr(builtins, maker.__name__, None) is not maker:
        maker = maker.__base__
    return maker


def _blank(kind: type[E], *made_from: Any) -> E:
    maker = _maker(kind)
    error: E = maker.__new__(kind, *made_from)
    # A class may have received arguments that the built-in class does not accept.
    with contextlib.suppress(Exception):
        maker.__init__(error, *made_from)
    return error


def _fill(error: BaseException, parts: _Parts) -> None:
    args, attributes = parts
    # A user's class may refuse to have attributes set, as a frozen dataclass does.
    BaseException.__setattr__(error, "args", args)
    vars(error).update(attributes)


class _ByParts:
    """Pickles exceptions by their parts."""

    whole = True

    def reducer_override(self, value: Any) -> Any:
        if not isinstance(value, BaseException) or _knows_how_to_travel(type(value)):
            further = getattr(super(), "reducer_override", None)
            return further(value) if further else NotImplemented
        args, attributes, given = value.args, vars(value), made_from(value)
        if not self.whole:
            args, given = _trimmed(args), _trimmed(given)
            attributes = _those_that_travel(attributes)
        # Filled after it was made, because it may contain itself.
        made = type(value), *given
        return _blank, made, (args, attributes), None, None, _fill


class _Pickler(_ByParts, pickle.Pickler):
    def __init__(self, file: io.BytesIO, *, whole: bool) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self.whole = whole

    def reducer_override(self, value: Any) -> Any:
        # It came by value, and looking it up would run its module.
        if isinstance(value, type) and value.__module__ not in sys.modules:
            raise pickle.PicklingError(f"{value.__module__} is not imported here")
        return super().reducer_override(value)


class ClassKeepingUnpickler(pickle.Unpickler):
    """Unpickles, without changing classes that already exist here.

    cloudpickle recognises a class that has travelled by value, also on its way back,
    but then overwrites all its attributes with the other process's: a worker's results
    or errors would change classes of the parent's script.
    """

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        self._new: set[type] = set()

    def find_class(self, module: str, name: str) -> Any:
        """Looks up a global; functions that make classes are wrapped."""
        found = super().find_class(module, name)
        if module == "cloudpickle.cloudpickle":
            if name in CLASS_MAKERS:
                return functools.partial(self._make_class, found)
            if name == "_class_setstate":
                return functools.partial(self._fill_class, found)
        return found

    def _make_class(self, make: Callable[..., type], *args: Any) -> type:
        is_here = self._knows(args[-2])
        made = make(*args)
        if not is_here:
            self._new.add(made)
        return made

    def _knows(self, tracker_id: str) -> bool:
        """Returns True if cloudpickle recognises a class by its number."""
        cloudpickle = sys.modules["cloudpickle.cloudpickle"]
        return tracker_id in getattr(cloudpickle, "_DYNAMIC_CLASS_TRACKER_BY_ID", {})

    def _fill_class(self, fill: Callable[..., type], made: type, state: Any) -> type:
        return fill(made, state) if made in self._new else made


class _Unpickler(ClassKeepingUnpickler):
    def find_class(self, module: str, name: str) -> Any:
        if module not in sys.modules:
            raise pickle.UnpicklingError(f"{module} is not imported here")
        return super().find_class(module, name)


def _pickled(value: object, *, whole: bool) -> bytes | None:
    for pickler in _picklers():
        buffer = io.BytesIO()
        # A user's objects may raise anything when their state is read.
        try:
            pickler(buffer, whole=whole).dump(value)
        except Exception:
            continue
        return buffer.getvalue()
    return None


def _picklers() -> Iterator[Any]:
    yield _Pickler
    # A class without an importable name, such as a notebook's, came to this process
    # through cloudpickle, which is therefore loaded and recognises it on its way back.
    cloudpickle = sys.modules.get("cloudpickle")
    if cloudpickle is not None:
        yield _by_value(cloudpickle.CloudPickler)


def _by_value(base: Any) -> Any:
    class ByValue(_ByParts, base):  # type: ignore[misc]  # known when it is loaded
        def __init__(self, file: io.BytesIO, *, whole: bool) -> None:
            super().__init__(file)
            self.whole = whole

    return ByValue


def _knows_how_to_travel(kind: type) -> bool:
    """Returns True if a class, not Python, defines how its instances are pickled."""
    return any(
        name in vars(parent)
        for parent in kind.__mro__
        if getattr(builtins, parent.__name__, None) is not parent
        for name in ("__reduce__", "__reduce_ex__")
    )


def _trimmed(values: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(value if _travels(value) else _repr(value) for value in values)


def _those_that_travel(values: dict[str, Any]) -> dict[str, Any]:
    return {
        name: value if _travels(value) else cut(value)
        for name, value in values.items()
        if _travels(value) or isinstance(value, str)
    }


def _travels(value: object) -> bool:
    parts = value if isinstance(value, list | tuple) else (value,)
    # Exceptions inside exceptions are trimmed when their turn comes.
    if parts and all(isinstance(part, BaseException) for part in parts):
        return True
    data = _pickled(value, whole=True)
    return data is not None and len(data) <= _MOST_OF_ONE


def _repr(value: object) -> str:
    try:
        # Cut the text itself, because a message must not appear in quotes.
        return cut(value if isinstance(value, str) else repr(value))
    except Exception:
        return object.__repr__(value)
