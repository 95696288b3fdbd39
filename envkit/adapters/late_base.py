"""`LateBase`: a class that inherits from another library's when it is first used."""

from __future__ import annotations

import functools
from typing import Any, TypeVar

__all__ = ["LateBase"]

Self = TypeVar("Self", bound="LateBase")


class LateBase:
    """Gets a base class of another library, which is imported when one is made.

    An object is of a class with the same name that inherits from both. What the other
    library has is then found by `super()`, too.

    Example:
        >>> class Settings(LateBase):
        ...     @classmethod
        ...     def _load_base(cls):
        ...         from collections import UserDict
        ...         return UserDict
        >>> settings = Settings(speed=2)
        >>> settings["speed"], type(settings).__name__, isinstance(settings, Settings)
        (2, 'Settings', True)
    """

    @classmethod
    def _load_base(cls) -> type:
        """Imports the library and returns the class."""
        raise NotImplementedError

    def __new__(cls: type[Self], *args: Any, **kwargs: Any) -> Self:
        """Makes an object of the completed class."""
        made: Self = super().__new__(_completed(cls))  # type: ignore[arg-type]  # a class is hashable
        return made

    # Nobody finds the completed class by its name, so it is made again.
    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return _new, (type(self).__mro__[1],), self.__getstate__()

    def __getstate__(self) -> Any:
        return vars(self)


@functools.cache
def _completed(cls: Any) -> Any:
    """Returns the class with its base."""
    base = cls._load_base()
    if issubclass(cls, base):
        return cls
    names = ("__module__", "__qualname__", "__doc__")
    return type(cls.__name__, (cls, base), {name: getattr(cls, name) for name in names})


def _new(cls: Any) -> Any:
    return cls.__new__(cls)
