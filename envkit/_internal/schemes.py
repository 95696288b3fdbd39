"""Schemes: the libraries behind `make("scheme:id")`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from envkit._internal.entry_points import loaded
from envkit._internal.extras import install_command
from envkit._internal.plugins import NAMES, SCHEMES, Plugin
from envkit.errors import MissingDependencyError

__all__ = ["Scheme", "names_of", "scheme_named"]


class Scheme(NamedTuple):
    """Describes a library's environments: how to make them, and what to install.

    An entry point of the group `envkit.schemes` names one. Functions may be given as
    `"module:function"`, so that the facts can be read with few imports: a module with a
    scheme imports neither its library nor NumPy, so `envkit list` reads twenty of them
    in a moment.

    Attributes:
        loader: Takes the text after the colon, and keyword arguments; returns the
            environment.
        title: The name of the library, for tables.
        example: An example of the text after the colon, for tables.
        page: The page about it in `docs`, without `.md`: "adapters/atari".
        package: The required package, as Python imports it; "" for none.
        extra: The extra of envkit that installs the package.
        requires: The requirements for pip, as in `pyproject.toml`.
        lister: Returns the names that may follow the colon.
        preload: Takes the text after the colon, and imports everything that the
            environment needs besides the package, without making it; servers call it
            ahead of time.
        address: An example of an address after the colon, if addresses follow it; they
            cannot be listed.
        takes: The meaning of such an address.
        batched_by: The argument with which the library steps `num_envs` rows itself.
        is_alone: Whether a process can host only one environment.
        beside: A second required package, which pip does not find.
        remedy: What to do if it is missing; `{command}` is the pip command for the
            rest.

    Example:
        >>> Scheme("maze_envs.loading:load", package="maze_envs").is_alone
        False
    """

    loader: str | Callable[..., Any]
    package: str = ""
    extra: str = ""
    requires: tuple[str, ...] = ()
    title: str = ""
    example: str = ""
    page: str = ""
    lister: str | Callable[[], Iterable[str]] | None = None
    preload: str | Callable[[str], object] | None = None
    address: str = ""
    takes: str = "the address of a server"
    batched_by: str = ""
    is_alone: bool = False
    beside: str = ""
    remedy: str = ""

    def missing(self, subject: str) -> MissingDependencyError | None:
        """Returns the error if a package is missing; imports nothing.

        Args:
            subject: The feature that needs the package, as the beginning of the
                message.
        """
        if self.package and not _is_there(self.package):
            return MissingDependencyError.needed_by(
                subject, package=self.package, extra=self.extra, requires=self.requires
            )
        if not self.beside or _is_module(self.beside):
            return None
        command = install_command(self.extra, requires=self.requires)
        error = MissingDependencyError(
            f"{subject} needs {self.title}, which is not installed, and which no "
            f"package registry has. {self.remedy.format(command=command)}"
        )
        error.package, error.extra = self.beside, self.extra
        return error


def _is_there(package: str) -> bool:
    """Returns True if a package can be imported; does not import it."""
    import importlib.util

    return importlib.util.find_spec(package) is not None


def _is_module(name: str) -> bool:
    """Returns True if a name can be imported and is not just a folder."""
    import importlib.util

    spec = importlib.util.find_spec(name)
    return spec is not None and spec.origin is not None


def scheme_named(name: str) -> Scheme | None:
    """Returns the scheme of a name, of any package; `None` if there is none.

    Raises:
        ConstructorError: Several packages offer it, or its package is broken.
    """
    plugin = SCHEMES.find(name)
    if plugin is None:
        return None
    found = plugin.load()
    return found if isinstance(found, Scheme) else Scheme(_callable(plugin, found))


def names_of(name: str, scheme: Scheme) -> list[str] | None:
    """Returns the names that may follow the colon; `None` if the library lists none.

    Raises:
        MissingDependencyError: The library is not installed.
    """
    lister = scheme.lister
    if lister is None and (plugin := NAMES.find(name)) is not None:
        lister = _callable(plugin, plugin.load())
    if lister is None:
        return None
    return list(loaded(lister)() if isinstance(lister, str) else lister())


def _callable(plugin: Plugin, found: Any) -> Callable[..., Any]:
    if not callable(found):
        from envkit.specs.validation import describe  # loads NumPy

        raise plugin.broken(
            f"is {describe(found)}, which cannot be called to make an environment"
        )
    return found  # type: ignore[no-any-return]  # callable() says so
