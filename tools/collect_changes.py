"""Collects the fragments in docs/changes into a section of CHANGELOG.md.

    python tools/collect_changes.py 0.3.0
    python tools/collect_changes.py 0.3.0 --date 2027-01-31

A fragment is a file `AREA.SLUG.KIND.md` with two lines at most: what users notice, and
a link to its page, relative to docs/. KIND is breaking, feature or fix. The section
goes above those of older versions, the fragments are removed, and `envkit.__version__`
becomes the version. The remaining steps are printed: look at the section, commit it,
and tag it.
"""

from __future__ import annotations

import argparse
import datetime
import re
import sys
from pathlib import Path

AREAS = {
    "contract": "Making and using environments",
    "environments": "Environments",
    "pools": "Pools",
    "adapters": "Adapters",
    "wrappers": "Wrappers",
    "tensorflow": "TensorFlow and JAX",
    "pytorch": "PyTorch",
    "recording": "Recording",
    "realtime": "Real time",
    "sessions": "Sessions",
    "desktop": "Desktop",
    "network": "Network",
    "commands": "Command line",
    "docs": "Documentation",
}
# Breaking changes come first in their area, and say so.
KINDS = {"breaking": "**Breaking:** ", "feature": "", "fix": "Fixed: "}
HEAD = """# Changelog

Changes that users notice, newest version first.
Entries are collected from `docs/changes/` when a version is released.
"""


def fragments(folder: Path) -> dict[str, list[Path]]:
    """Returns the fragments by area, breaking changes first, then in order of names.

    Raises:
        ValueError: A file is not called AREA.SLUG.KIND.md.
    """
    found: dict[str, list[Path]] = {area: [] for area in AREAS}
    for path in sorted(folder.glob("[!.]*")):
        match = re.fullmatch(r"(\w+)\.[a-z0-9-]+\.(\w+)\.md", path.name)
        if match is None or match[1] not in AREAS or match[2] not in KINDS:
            raise ValueError(
                f"{path.name} must be called AREA.SLUG.KIND.md, where AREA is one of "
                f"{', '.join(AREAS)}, and KIND one of {', '.join(KINDS)}."
            )
        found[match[1]].append(path)
    order = list(KINDS)
    for paths in found.values():
        paths.sort(key=lambda path: order.index(path.name.split(".")[2]))
    return found


def entry(path: Path) -> str:
    """Returns a line of the changelog, whose links begin where it lies."""
    text = " ".join(path.read_text("utf-8").split())
    text = re.sub(r"\]\((?!https?:)", "](docs/", text)
    return f"- {KINDS[path.name.split('.')[2]]}{text}\n"


def section(version: str, date: str, found: dict[str, list[Path]]) -> str:
    """Returns the section of a version, with an entry for each fragment."""
    parts = [f"## {version} ({date})\n\nTag `v{version}`.\n"]
    for area, heading in AREAS.items():
        if found[area]:
            parts.append(f"### {heading}\n\n" + "".join(map(entry, found[area])))
    return "\n".join(parts)


def collect(root: Path, version: str, date: str) -> int:
    """Writes the section and the version, removes the fragments; returns how many.

    Raises:
        ValueError: There is no fragment, a fragment has a wrong name, or the changelog
            has a section of this version.
    """
    found = fragments(root / "docs/changes")
    paths = [path for paths in found.values() for path in paths]
    if not paths:
        raise ValueError("docs/changes has no fragment: there is nothing to release.")
    changelog = root / "CHANGELOG.md"
    before = changelog.read_text("utf-8")
    if f"## {version} " in before:
        raise ValueError(f"CHANGELOG.md has a section of version {version} already.")
    older = before[before.index("\n## ") :] if "\n## " in before else ""
    changelog.write_text(f"{HEAD}\n{section(version, date, found)}{older}", "utf-8")
    package = root / "envkit/__init__.py"
    code = package.read_text("utf-8")
    package.write_text(
        re.sub(r'__version__ = "[^"]*"', f'__version__ = "{version}"', code), "utf-8"
    )
    for path in paths:
        path.unlink()
    return len(paths)


def main() -> None:
    """Collects, and prints what is left to do."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("version", help="the version to release, such as 0.3.0")
    parser.add_argument(
        "--date", default=datetime.date.today().isoformat(), help="today if not given"
    )
    parser.add_argument("--root", type=Path, default=Path(__file__).parent.parent)
    options = parser.parse_args()
    try:
        count = collect(options.root, options.version, options.date)
    except ValueError as error:
        sys.exit(str(error))
    print(f"{count} entries are in CHANGELOG.md. Look at them, then:")
    print(f"git commit -am 'release {options.version}' && git tag v{options.version}")


if __name__ == "__main__":
    main()
