"""Values that no other process finds by their names, as bytes, through cloudpickle.

cloudpickle takes classes and functions apart. What remembers results in a class, as
`functools.lru_cache` and `functools.cached_property` do, it leaves to pickle, which
looks for the one by name and cannot take the other's lock. Here both travel, without
what they remember.
"""

from __future__ import annotations

import collections
import functools
import io
import sys
from collections.abc import Callable
from typing import Any, ClassVar

__all__ = ["dump_by_value"]


def dump_by_value(value: Any) -> bytes:
    """Turns a value into bytes that hold whatever another process would not find.

    Raises:
        ImportError: cloudpickle is not installed.

    Example:
        >>> import pickle
        >>> pickle.loads(dump_by_value(functools.lru_cache(lambda x: x + 1)))(2)
        3
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
