"""Finds packages' additions to envkit by entry points, including envkit's own.

Other packages are searched only if envkit has no such name, because reading the
metadata of everything installed takes a while.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from envkit._internal.entry_points import loaded, own
from envkit._internal.text import listed
from envkit.errors import ConstructorError, EnvkitError

__all__ = ["BACKENDS", "NAMES", "OBJECTS", "SCHEMES", "Plugin", "Plugins"]

_DISTRIBUTION = "envkit-rl"


class Plugin(NamedTuple):
    """One entry point.

    Attributes:
        kind: The kind of addition, in a word: "scheme".
        name: The name that users write.
        value: `"module"` or `"module:attribute"`.
        package: The package and its version; "" for envkit itself.
        error: The class of the error that is raised if it cannot be loaded.
    """

    kind: str
    name: str
    value: str
    package: str
    error: type[EnvkitError]

    def load(self) -> Any:
        """Loads the object that the entry point names.

        Raises:
            EnvkitError: It cannot be loaded; the message names the package.
        """
        if not self.package:
            return loaded(self.value)
        try:
            return loaded(self.value)
        except (Exception, SystemExit) as error:  # its code may do anything
            raise self.broken(
                f"cannot be loaded: {type(error).__name__}: {error}"
            ) from error

    def broken(self, why: str) -> EnvkitError:
        """Returns the error that names the fault and the package."""
        package = self.package or _DISTRIBUTION
        return self.error(
            f"The {self.kind} {self.name!r} is offered by {package}, whose entry point "
            f"{self.value!r} {why}. Reinstall or update {package.partition(' ')[0]}, "
            "or tell its authors."
        )


class Plugins:
    """Lists the entry points of one group.

    Example:
        >>> SCHEMES.find("gymnasium").name
        'gymnasium'
        >>> SCHEMES.find("chess") is None
        True
    """

    def __init__(
        self, group: str, kind: str, error: type[EnvkitError] = EnvkitError
    ) -> None:
        """Takes the group's name, and the name of its members in messages."""
        self.group, self._kind, self._error = group, kind, error

    def own(self) -> list[str]:
        """Returns envkit's own names, in the order of its file."""
        return list(own(self.group))

    def names(self) -> list[str]:
        """Returns all names, sorted."""
        return sorted({*self.own(), *(plugin.name for plugin in self._foreign())})

    def find(self, name: str) -> Plugin | None:
        """Returns the entry point of a name; envkit's own take precedence.

        Raises:
            EnvkitError: Several packages offer it.
        """
        value = own(self.group).get(name)
        if value is not None:
            return Plugin(self._kind, name, value, "", self._error)
        offers = {each.value: each for each in self._foreign() if each.name == name}
        if len(offers) > 1:
            who = [f"{each.package} ({each.value})" for each in offers.values()]
            raise self._error(
                f"The {self._kind} {name!r} is offered by {len(who)} packages: "
                f"{listed(sorted(who))}. Uninstall all but one of them."
            )
        return next(iter(offers.values()), None)

    def first(self, names: Iterable[str], *, others: bool = True) -> Plugin | None:
        """Returns the entry point of the first name that has one.

        Args:
            names: The names; any that envkit itself offers comes before the others.
            others: Whether to search other packages too.
        """
        names, known = list(names), own(self.group)
        if others and not any(name in known for name in names):
            known = {plugin.name: plugin.value for plugin in self._foreign()}
        return next((self.find(name) for name in names if name in known), None)

    def _foreign(self) -> list[Plugin]:
        """Returns other packages' entry points; packages can arrive at any time."""
        import importlib.metadata

        found = []
        for entry in importlib.metadata.entry_points(group=self.group):
            package = "a package"
            if entry.dist is not None:
                if entry.dist.name == _DISTRIBUTION:
                    continue
                package = f"{entry.dist.name} {entry.dist.version}"
            found.append(
                Plugin(self._kind, entry.name, entry.value, package, self._error)
            )
        return found


SCHEMES = Plugins("envkit.schemes", "scheme", ConstructorError)
# The text after the colon of a scheme.
NAMES = Plugins("envkit.names", "scheme", ConstructorError)
BACKENDS = Plugins("envkit.backends", "backend")
# The full names of other libraries' base classes.
OBJECTS = Plugins("envkit.objects", "wrapper for objects of", ConstructorError)
