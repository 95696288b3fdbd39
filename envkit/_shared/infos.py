"""Reads the infos of environments that may have none: `InfoReader`."""

from __future__ import annotations

from typing import Any

__all__ = ["InfoReader"]


class InfoReader:
    """Reads an environment's info; stops asking once it turns out to have none.

    Example:
        >>> from envkit.testing import CountingEnv
        >>> InfoReader(CountingEnv()).read()
        {}
    """

    __slots__ = ("_env", "_has_info")

    def __init__(self, env: Any) -> None:
        self._env = env
        self._has_info = True

    def read(self) -> Any:
        """Returns the info of the current time step; `None` if there are no infos."""
        if self._has_info:
            try:
                return self._env.get_info()
            except NotImplementedError:
                self._has_info = False
        return None
