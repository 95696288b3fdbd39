"""gin's register of configurables, as far as envkit's are entered there.

TF-Agents enters its own under the names that envkit's have. gin takes a name once, so
whoever comes second would fail, `import tf_agents` included. envkit's entries therefore
put those of TF-Agents aside, step aside themselves while a module of TF-Agents is
imported, and give the names back in the end. The values that files bind belong to the
name, so both libraries are given them whoever has it.

gin has no functions for this; what is used here is that of gin-config 0.5.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any

from envkit.errors import EnvkitError

__all__ = ["Entries"]


class Entries:
    """The names in gin's register that stand for something of envkit's."""

    def __init__(self) -> None:
        """Begins without any."""
        from gin import config

        self._config: Any = config
        # By name: what had it before.
        self._displaced: dict[str, Any] = {}
        # By name: what is configurable there, and what gin knew it as before.
        self._targets: dict[str, tuple[Any, Any]] = {}

    def enter(self, module: str, name: str, target: Callable[..., Any]) -> Any:
        """Makes a function or class configurable, and returns what takes values.

        That is the class itself, whose `__init__` is another from now on, or another
        function. What had the name is put aside.
        """
        selector = f"{module}.{name}"
        before = self._taken_out(selector)
        known_as = self._config._INVERSE_REGISTRY.get(target)
        try:
            configured = self._configured(module, name, target)
        except BaseException:
            self._put_back(selector, before)
            raise
        if selector in self._targets:
            self._forget(selector)
        else:
            self._displaced[selector] = before
        self._targets[selector] = target, known_as
        self._look_again(before)
        return configured

    @contextlib.contextmanager
    def aside(self, module: str) -> Iterator[None]:
        """Frees the names of a module while that is imported, and takes them again."""
        names = [name for name in self._targets if name.rpartition(".")[0] == module]
        entries = {name: self._taken_out(name) for name in names}
        try:
            yield
        finally:
            for name, entry in entries.items():
                self._displaced[name] = self._taken_out(name) or self._displaced[name]
                self._put_back(name, entry)

    def leave(self) -> None:
        """Gives every name back to what had it before.

        Where nothing had, what files said of the name is dropped: gin could not write
        it down any more.
        """
        for selector in list(self._targets):
            self._forget(selector)
            ours = self._taken_out(selector)
            before = self._displaced.pop(selector)
            self._put_back(selector, before)
            if before is None:
                self._drop_what_is_said(selector, ours)
            else:
                self._look_again(ours)

    def _configured(self, module: str, name: str, target: Callable[..., Any]) -> Any:
        configured: Any = self._config.configurable(name, module=module)(target)
        if inspect.isclass(target):
            configured.__init__ = _with_facts(configured.__init__)
            return configured
        configured = _with_facts(configured)
        entry = self._config._INVERSE_REGISTRY[target]._replace(wrapper=configured)
        self._config._REGISTRY[entry.selector] = entry
        self._config._INVERSE_REGISTRY[target] = entry
        return configured

    def _forget(self, selector: str) -> None:
        target, known_as = self._targets.pop(selector)
        if known_as is None:
            del self._config._INVERSE_REGISTRY[target]
        else:
            self._config._INVERSE_REGISTRY[target] = known_as

    def _taken_out(self, selector: str) -> Any:
        registry = self._config._REGISTRY
        return registry.pop(selector) if selector in registry else None

    def _put_back(self, selector: str, entry: Any) -> None:
        if entry is not None:
            self._config._REGISTRY[selector] = entry

    def _look_again(self, entry: Any) -> None:
        """Has the references in values find what has their name now."""
        if entry is not None:
            for reference in self._references(self._config._CONFIG, entry):
                reference.initialize()

    def _references(self, values: Any, entry: Any) -> list[Any]:
        return list(self._config.iterate_references(values, to=entry.wrapper))

    def _drop_what_is_said(self, selector: str, entry: Any) -> None:
        for values in (self._config._CONFIG, self._config._OPERATIVE_CONFIG):
            for key, bound in list(values.items()):
                kept = {
                    name: value
                    for name, value in bound.items()
                    if key[1] != selector and not self._references([value], entry)
                }
                if len(kept) < len(bound) or key[1] == selector:
                    del values[key]
                if kept:
                    values[key] = kept


def _with_facts(configured: Callable[..., Any]) -> Callable[..., Any]:
    """Lets errors of envkit through as they are.

    gin raises a copy of each error, with a sentence of its own, which has none of the
    attributes that say which environment it was, and which does not pickle.
    """

    @functools.wraps(configured)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return configured(*args, **kwargs)
        except EnvkitError as copy:
            error = copy.__context__
            if error is None or type(error) not in type(copy).__bases__:
                raise
        raise error

    return call
