"""Writes what the schemes say into pyproject.toml, README and docs/libraries.md.

    python tools/libraries.py

What it writes stands between two comments, such as `libraries` and `end of libraries`.
`tests/test_libraries.py` fails where that is not what the schemes say.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

from envkit._internal.plugins import SCHEMES
from envkit._internal.schemes import scheme_named
from envkit.extend import Scheme, install_command

ROOT = Path(__file__).parents[1]
# BrowserGym and NLE ask for one version of Playwright and of Gymnasium, Jericho and
# Reasoning Gym need a compiler and TextWorld needs Jericho, nobody maintains the old
# Gym, and the pygame of PySC2 shares a folder with the pygame-ce of others.
APART = {"browsergym", "gym", "jericho", "nle", "pysc2", "reasoning-gym", "textworld"}
# Packages whose types mypy reads.
TYPED = {"gymnasium"}
_WIDTH = 88


def schemes() -> dict[str, Scheme]:
    """Returns envkit's own schemes by name."""
    found = {name: scheme_named(name) for name in SCHEMES.own()}
    return {name: scheme for name, scheme in found.items() if scheme is not None}


def target(name: str, scheme: Scheme) -> str:
    return f"{name}:{scheme.address or scheme.example}"


def readme() -> Iterator[str]:
    yield from ("| library | by name | extra |", "| :--- | :--- | :--- |")
    for name, scheme in schemes().items():
        link = f"[{scheme.title}](docs/{scheme.page}.md)"
        yield f"| {link} | `{target(name, scheme)}` | `{scheme.extra}` |"


def page() -> Iterator[str]:
    yield from ("| by name | library | it needs |", "|---|---|---|")
    for name, scheme in schemes().items():
        command = install_command(package=scheme.package, requires=scheme.requires)
        yield (
            f'| `"{target(name, scheme)}"` | [{scheme.title}]({scheme.page}.md) | '
            f"{f'`{command}`' if scheme.package else 'nothing'} |"
        )


def project() -> Iterator[str]:
    needs = {scheme.extra: scheme.requires for scheme in schemes().values()}
    for extra in sorted(needs):
        yield from _array(extra, needs[extra])
    together = ",".join(sorted(needs.keys() - APART))
    yield "# Those that go with one another."
    yield from _array("libraries", [f"envkit-rl[{together}]"])


def modules() -> Iterator[str]:
    packages = {scheme.package.partition(".")[0] for scheme in schemes().values()}
    packages -= {"", *TYPED}
    yield "[[tool.mypy.overrides]]"
    yield from _array("module", [f"{name}.*" for name in sorted(packages)])
    yield from ("ignore_missing_imports = true", 'follow_imports = "skip"')
    yield "follow_imports_for_stubs = true"


def _array(name: str, texts: tuple[str, ...] | list[str]) -> Iterator[str]:
    items = [json.dumps(text) for text in texts]
    line = f"{name} = [{', '.join(items)}]"
    if len(line) <= _WIDTH:
        yield line
    else:
        yield from (f"{name} = [", *(f"  {item}," for item in items), "]")


# What is written into each file, by the comments around it.
PLACES: dict[str, dict[str, Callable[[], Iterator[str]]]] = {
    "README.md": {"libraries": readme},
    "docs/libraries.md": {"libraries": page},
    "pyproject.toml": {"libraries": project, "modules of libraries": modules},
}


def written(path: str) -> str:
    """Returns the text of a file with what the schemes say in its places."""
    text = (ROOT / path).read_text("utf-8")
    is_toml = path.endswith(".toml")
    gap, (start, end) = ("", ("# ", "")) if is_toml else ("\n", ("<!-- ", " -->"))
    for name, lines in PLACES[path].items():
        new = "".join(f"{line}\n" for line in lines())
        opening, closing = f"{start}{name}{end}\n", f"{start}end of {name}{end}\n"
        before, _, rest = text.partition(opening)
        _, closed, after = rest.partition(closing)
        assert closed, f"{path} has no place for {name}"
        text = f"{before}{opening}{gap}{new}{gap}{closing}{after}"
    return text


def main() -> None:
    """Writes all of them."""
    for path in PLACES:
        (ROOT / path).write_text(written(path), "utf-8")


if __name__ == "__main__":
    main()
