"""`Author`: the author's side of an adapter, and who asks it for what, and when.

```
start ── reset ── step … step ── reset ── … ── close
  │        └ seed, if one is due
  └ when something is first needed, in the process that needs it
```
"""

from __future__ import annotations

import inspect
import sys
from typing import Any

from envkit.adapters.env_adapters.returned import Read, reset_reader
from envkit.errors import ClosedError
from envkit.specs.environment_spec import checked_spec

__all__ = ["Author", "author_of"]


class Author:
    """Calls the methods that an author has written, in their order.

    Attributes:
        arguments: What the adapter was made with: positional and keyword arguments.
        inside: How many calls of the author's methods are under way.
        started: Whether there is an environment of the library's.
        closed: Whether the adapter was closed.
        next_seed: What the next reset is seeded with.
        first: What a reset returned before anybody had asked for a time step.
    """

    def __init__(self, adapter: Any, arguments: tuple[Any, dict[str, Any]]) -> None:
        """Prepares; the author is asked for nothing."""
        self._adapter = adapter
        self._written = type(adapter)._authored
        self.arguments = arguments
        self.inside = 0
        self.started = False
        self.closed = False
        self.next_seed: int | None = None
        self.first: Read | None = None

    @property
    def name(self) -> str:
        """What messages call the adapter."""
        return type(self._adapter).__name__

    @property
    def staying(self) -> list[Any]:
        """What is no part of a state, in an order that does not change.

        It is the adapter, functions and classes that it was made with, and classes that
        do not pickle by name: those of a program's main script, in a worker.
        """
        args, kwargs = self.arguments
        given = [*args, *(kwargs[name] for name in sorted(kwargs))]
        classes = {
            name: value
            for method in self._written.values()
            for name, value in getattr(method, "__globals__", {}).items()
            if isinstance(value, type) and not _is_found(value)
        }
        by_name = [classes[name] for name in sorted(classes)]
        return [self._adapter, *filter(callable, given), *by_name]

    def reset_takes(self, name: str) -> bool:
        """Says whether the author's `reset` has an argument of a name."""
        return name in inspect.signature(self._written["reset"]).parameters

    def wrote(self, verb: str) -> bool:
        """Says whether the author has written a method."""
        return verb in self._written

    def ask(self, verb: str, *args: Any, **kwargs: Any) -> Any:
        """Calls a method of the author's."""
        # Hot: called once per step.
        self.inside += 1
        try:
            return self._written[verb](self._adapter, *args, **kwargs)
        finally:
            self.inside -= 1

    def legal_actions(self, observation: Any) -> Any:
        """Asks which actions are legal."""
        self.inside += 1
        try:
            return self._adapter.legal_actions(observation)
        finally:
            self.inside -= 1

    def start(self) -> None:
        """Has an environment made, unless there is one."""
        if self.started:
            return
        self.check_open("start")
        if self.wrote("start"):
            instance = self.ask("start")
            if instance is not None:
                self._adapter.env_instance = instance
        self.started = True

    def stop(self) -> None:
        """Has the environment closed, if there is one."""
        if not self.started:
            return
        self.started, self.first = False, None
        adapter = self._adapter
        try:
            if self.wrote("close"):
                self.ask("close")
            elif callable(getattr(adapter.env_instance, "close", None)):
                adapter.env_instance.close()
        finally:
            adapter.env_instance = None

    def begin(self, options: dict[str, Any] | None = None) -> Read:
        """Has an episode begun, with the seed that is due."""
        self.check_open("reset")
        self.start()
        # Without defaults it takes all that it names, whatever there is.
        given = {"seed": self.next_seed, "options": options}
        arguments = {name: given[name] for name in given if self.reset_takes(name)}
        if self.next_seed is not None and "seed" not in arguments:
            self.ask("seed", self.next_seed)
        result = self.ask("reset", **arguments)
        self.next_seed = None
        return reset_reader(self.name, self._adapter.reset_returns)(result)

    def render(self, mode: str) -> Any:
        """Asks for a picture, of a mode if the author knows modes."""
        if len(inspect.signature(self._written["render"]).parameters) > 1:
            return self.ask("render", mode)
        if mode != "rgb_array":
            raise ValueError(f"{self.name} renders 'rgb_array' only, not {mode!r}.")
        return self.ask("render")

    def first_observation(self) -> Any:
        """Returns the observation of an episode that is yet to be played."""
        if self.first is None:
            self.first = self.begin()
        return self.first.observation

    def take_first(self, options: dict[str, Any] | None = None) -> Read:
        """Returns what an episode begins with, which may have begun already."""
        first, self.first = self.first, None
        # Where a clock goes on, that is past; and with options it begins otherwise.
        if first is None or self._adapter.realtime or options is not None:
            return self.begin(options)
        return first

    def declared(self, spec: str) -> Any:
        """Asks for specs, which may be known only when there is an environment.

        Returns `None` if the author declares none.
        """
        if not self.wrote(spec):
            return None
        try:
            declared = self.ask(spec)
        except Exception:
            if self.started:
                raise
            self.start()
            declared = self.ask(spec)
        if declared is None:
            return None
        return checked_spec(declared, f"{self.name}.{spec} is")

    def check_open(self, call: str) -> None:
        """Raises if the adapter was closed."""
        if self.closed:
            raise ClosedError.used(self.name, call)


def _is_found(kind: type) -> bool:
    """Says whether a class is found by its name, as pickle looks for it."""
    found: Any = sys.modules.get(kind.__module__)
    for part in kind.__qualname__.split("."):
        found = getattr(found, part, None)
    return found is kind


def author_of(adapter: Any) -> Author:
    """Returns the author's side of an adapter."""
    return adapter._author  # type: ignore[no-any-return]  # every adapter has it
