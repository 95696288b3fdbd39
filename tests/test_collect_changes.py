"""A release's section is collected from the fragments."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tools.collect_changes import AREAS, KINDS

ROOT = Path(__file__).parent.parent


@pytest.fixture
def project(tmp_path):
    """A project with a version and three fragments."""
    changes = tmp_path / "docs/changes"
    changes.mkdir(parents=True)
    (changes / "pools.ducks.feature.md").write_text(
        "Ducks\nswim.\n[Ponds](ponds.md)\n", "utf-8"
    )
    (changes / "pools.geese.breaking.md").write_text("No geese.\n", "utf-8")
    (changes / "pools.sink.fix.md").write_text("They do not sink.\n", "utf-8")
    (tmp_path / "envkit").mkdir()
    (tmp_path / "envkit/__init__.py").write_text('__version__ = "0.1.0"\n', "utf-8")
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## 0.1.0\n\nOld.\n", "utf-8")
    return tmp_path


def collect(project: Path, version: str = "0.2.0") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [
            sys.executable,
            str(ROOT / "tools/collect_changes.py"),
            version,
            "--date=2026-11-22",
            f"--root={project}",
        ],
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_new_section_groups_fragments_by_area_above_older_sections(project):
    assert 0 == collect(project).returncode

    assert """# Changelog

Changes that users notice, newest version first.
Entries are collected from `docs/changes/` when a version is released.

## 0.2.0 (2026-11-22)

Tag `v0.2.0`.

### Pools

- **Breaking:** No geese.
- Ducks swim. [Ponds](docs/ponds.md)
- Fixed: They do not sink.

## 0.1.0

Old.
""" == (project / "CHANGELOG.md").read_text("utf-8")
    assert not list((project / "docs/changes").iterdir())
    assert '__version__ = "0.2.0"\n' == (project / "envkit/__init__.py").read_text()


def test_an_invalid_fragment_is_refused_and_nothing_is_written(project):
    before = (project / "CHANGELOG.md").read_text("utf-8")
    (project / "docs/changes/pools.bug.bugfix.md").write_text("?", "utf-8")
    refused = collect(project)
    assert (
        1,
        "pools.bug.bugfix.md must be called AREA.SLUG.KIND.md, where AREA is one of "
        f"{', '.join(AREAS)}, and KIND one of breaking, feature, fix.\n",
    ) == (refused.returncode, refused.stderr)
    assert before == (project / "CHANGELOG.md").read_text("utf-8")


def test_a_version_is_released_once_and_never_empty(project):
    collect(project)
    assert "there is nothing to release" in collect(project, "0.3.0").stderr

    (project / "docs/changes/pools.more.fix.md").write_text("More.", "utf-8")
    assert "has a section of version 0.2.0 already" in collect(project).stderr


def test_the_fragments_of_this_project_have_an_area_a_kind_and_a_link():
    for path in (ROOT / "docs/changes").glob("[!.]*"):
        area, _, kind, suffix = path.name.split(".")
        assert (area in AREAS, kind in KINDS, suffix) == (True, True, "md"), path.name
        text = path.read_text("utf-8")
        for link in re.findall(r"\]\(([^)#]+)", text):
            assert (ROOT / "docs" / link).exists(), path.name
        assert "](" in text, path.name
