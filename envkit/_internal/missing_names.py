"""Names that a class or a function lacks: using one says what to use instead.

The words of other libraries, and what to use instead, attach by an entry point of the
group `envkit.advice`. They are no part of a class: `hasattr` says False, `dir` hides
them, an author may use each for anything, and a `__getattr__` is asked as before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from envkit._internal.entry_points import advice
from envkit._internal.text import nearest

__all__ = ["Derived", "explains_words", "no_word", "refuse_unknown_arguments"]

T = TypeVar("T")


class _Yielding:
    """An attribute of a class that gives way to any other of its name.

    Other than a property, it can be assigned to, and classes that come later in the
    method resolution order may define it.
    """

    _home: type
    _name: str

    def __set_name__(self, owner: type, name: str) -> None:
        self._home, self._name = owner, name

    def _is_defined_later(self, owner: type) -> bool:
        mro = owner.__mro__
        later = [vars(each) for each in mro[mro.index(self._home) + 1 :]]
        found = [each[self._name] for each in later if self._name in each]
        return any(not isinstance(each, _Yielding) for each in found)

    def _later(self, instance: Any, owner: type) -> Any:
        one = owner if instance is None else instance
        return getattr(super(self._home, one), self._name)


class Derived(_Yielding, Generic[T]):
    """A value computed from an object, whose name authors may use for their own.

    Example:
        >>> class Batch:
        ...     rows = Derived(lambda batch: 3)
        >>> batch = Batch()
        >>> before, batch.rows = batch.rows, 7
        >>> before, batch.rows
        (3, 7)
    """

    def __init__(self, compute: Callable[[Any], T]) -> None:
        """Takes the function; its docstring describes the value."""
        self._compute = compute
        self.__doc__ = compute.__doc__

    def __get__(self, instance: Any, owner: type) -> T:
        if self._is_defined_later(owner):
            return self._later(instance, owner)  # type: ignore[no-any-return]  # another's
        if instance is None:
            raise AttributeError(f"only objects of {owner.__name__} have {self._name}")
        return self._compute(instance)


class _OtherWord(_Yielding):
    """A name that a class lacks; reading it raises a sentence with the right one."""

    def __init__(self, instead: str | Callable[[Any], str]) -> None:
        """Takes what to use instead."""
        self._instead = instead

    def __get__(self, instance: Any, owner: type) -> Any:
        if self._is_defined_later(owner):
            return self._later(instance, owner)
        instead = self._instead
        text = instead if isinstance(instead, str) else instead(instance)
        raise no_word(owner.__name__, self._name, text)


def no_word(subject: str, name: str, instead: str) -> AttributeError:
    """Returns the error for a name that a class lacks.

    Example:
        >>> no_word("TimeStep", "obs", "use observation")
        AttributeError('TimeStep has no obs: use observation.')
    """
    # Without `name`, Python guesses no name of its own behind the sentence. It takes
    # only an error without both for one that it must complete.
    return AttributeError(f"{subject} has no {name}: {instead}.", obj=subject)


def explains_words(home: type[T]) -> type[T]:
    """Makes a class explain the words of other libraries that it lacks.

    Example:
        >>> from envkit.specs import BoundedArraySpec
        >>> spec = BoundedArraySpec((), "float32", 0, 1)
        >>> hasattr(spec, "start"), "start" in dir(spec)
        (False, False)
        >>> spec.start
        Traceback (most recent call last):
        AttributeError: BoundedArraySpec has no start: use minimum.
    """
    for name, instead in advice("words")[home.__name__].items():
        word = _OtherWord(instead)
        word.__set_name__(home, name)
        setattr(home, name, word)
    setattr(home, "__dir__", _names_of)  # noqa: B010  # a method of it
    return home


def _names_of(thing: Any) -> list[str]:
    """Implements `dir` for objects whose class explains names that it lacks."""
    own = getattr(thing, "__dict__", ())
    return [
        name
        for name in object.__dir__(thing)
        if name in own
        or not isinstance(_on_class(type(thing), name), _Yielding)
        or hasattr(thing, name)
    ]


def _on_class(cls: type, name: str) -> Any:
    return next((vars(each)[name] for each in cls.__mro__ if name in vars(each)), None)


def refuse_unknown_arguments(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> None:
    """Raises for the first argument that a function lacks, with what to write instead.

    Example:
        >>> def make_maze(size): ...
        >>> refuse_unknown_arguments(make_maze, (), {"sizes": 3})
        Traceback (most recent call last):
        TypeError: make_maze() got an unexpected keyword argument 'sizes'. Did you mean size?
    """  # noqa: E501  # a message is one line
    code = function.__code__
    known = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    unknown = next((name for name in kwargs if name not in known), None)
    if unknown is None:
        return
    name = function.__qualname__.removesuffix(".__init__")
    instead = advice("arguments")(name, unknown, args, kwargs)
    if not instead and (near := nearest(unknown, known, most=1)):
        instead = f"Did you mean {near[0]}?"
    text = f"{name}() got an unexpected keyword argument {unknown!r}."
    raise TypeError(f"{text} {instead}" if instead else text)
