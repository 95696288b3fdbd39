"""Names the libraries that parts of envkit need, and the pip command for them.

The command names libraries rather than an extra of envkit, because for an extra pip
would look for envkit itself: on the package index, that name is another project's, and
from a clone or a wheel there is nothing to find.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from envkit._internal.entry_points import loaded, own

__all__ = ["extras", "install_command"]


def extras() -> dict[str, tuple[str, ...]]:
    """Returns the libraries of each extra of envkit, as in pyproject.toml.

    Example:
        >>> extras()["minigrid"]
        ('gymnasium>=1.0', 'minigrid>=2.3')
    """
    schemes = map(loaded, own("envkit.schemes").values())
    others: dict[str, tuple[str, ...]] = loaded(own("envkit.requirements")["extras"])
    return {**others, **{scheme.extra: scheme.requires for scheme in schemes}}


def install_command(
    *names: str, package: str = "", requires: Sequence[str] = ()
) -> str:
    """Returns the pip command for the libraries of extras, the missing package first.

    Args:
        *names: The extras. An unknown extra needs nothing.
        package: The missing package, by its name for import or pip.
        requires: Further requirements in pip's syntax, including the package, whose
            name for pip may differ.

    Example:
        >>> install_command("gymnasium", package="gymnasium")
        'pip install "gymnasium>=1.0"'
        >>> install_command("atari", package="gymnasium")
        'pip install "gymnasium>=1.0" "ale-py>=0.12.1"'
        >>> install_command("of-another-package", package="stones")
        'pip install stones'
        >>> install_command(package="pyspiel", requires=["open_spiel>=1.6"])
        'pip install "open_spiel>=1.6"'
    """
    known = extras()
    needed = [*requires, *(one for name in names for one in known.get(name, ()))]
    needed = [text.partition(";")[0].strip() for text in needed]
    name = package.lower().replace("_", "-")
    name = loaded(own("envkit.requirements")["modules"]).get(name, name)
    first = [one for one in needed if re.split(r"[\[<>=]", one)[0] == name]
    if package and not first and not requires:
        first = [package]
    words = dict.fromkeys([*first, *needed])
    return f"pip install {' '.join(map(_quoted, words))}"


def _quoted(requirement: str) -> str:
    return f'"{requirement}"' if re.search(r"[\[<>=]", requirement) else requirement
