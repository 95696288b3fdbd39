"""Collects the fragments in docs/changes into a section of CHANGELOG.md.

    python tools/collect_changes.py 0.3.0
    python tools/collect_changes.py 0.3.0 --date 2027-01-31

A fragment is a file `SLUG.KIND.md` with a sentence or two; KIND is breaking, feature or
fix. The section goes above those of older versions, the fragments are removed, and
`envkit.__version__` becomes the version. What is left to do is printed: to look at the
section, to commit it, and to tag it.
"""

from __future__ import annotations

import argparse
import datetime
import re
import sys
from pathlib import Path

HEADINGS = {"breaking": "Breaking changes", "feature": "New", "fix": "Fixed"}
HEAD = """# Changelog

Changes that users notice, newest version first.
Entries are collected from `docs/changes/` when a version is released.
"""


def fragments(folder: Path) -> dict[str, list[Path]]:
    """Returns the fragments by kind, each kind in the order of their names.

    Raises:
        ValueError: A file is not called SLUG.KIND.md.
    """
    found: dict[str, list[Path]] = {kind: [] for kind in HEADINGS}
    for path in sorted(folder.glob("[!.]*")):
        kind = re.fullmatch(r"[a-z0-9-]+\.(\w+)\.md", path.name)
        if kind is None or kind[1] not in HEADINGS:
            raise ValueError(
                f"{path.name} must be called SLUG.KIND.md, where KIND is one of "
                f"{', '.join(HEADINGS)}."
            )
        found[kind[1]].append(path)
    return found


def section(version: str, date: str, found: dict[str, list[Path]]) -> str:
    """Returns the section of a version, with an entry for each fragment."""
    parts = [f"## {version} ({date})\n\nTag `v{version}`.\n"]
    for kind, heading in HEADINGS.items():
        entries = [" ".join(path.read_text("utf-8").split()) for path in found[kind]]
        if entries:
            parts.append(f"### {heading}\n\n" + "".join(f"- {e}\n" for e in entries))
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
