"""Packages of other people with entry points, and envkit without schemes of its own."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from envkit._internal import entry_points, plugins


def hide_schemes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hides envkit's own schemes for one test."""

    def own(group: str) -> Mapping[str, str]:
        return {} if group == plugins.SCHEMES.group else entry_points.own(group)

    monkeypatch.setattr(plugins, "own", own)


class Packages:
    """A folder on the path, where packages are put with their entry points."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.syspath_prepend(folder)
        self.folder = folder
        self._monkeypatch = monkeypatch

    def install(
        self,
        modules: Mapping[str, str],
        points: Mapping[str, Mapping[str, str]],
        package: str = "maze-envs",
        version: str = "1.2",
    ) -> None:
        """Does what pip does.

        Args:
            modules: The source of each module.
            points: The entry points of each group.
            package: The name of the package.
            version: Its version.
        """
        info = self.folder / f"{package.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n", "utf-8"
        )
        lines = []
        for group, entries in points.items():
            lines += [f"[{group}]", *(f"{key} = {at}" for key, at in entries.items())]
        (info / "entry_points.txt").write_text("\n".join([*lines, ""]), "utf-8")
        for name, source in modules.items():
            (self.folder / f"{name}.py").write_text(source, "utf-8")
            self._monkeypatch.delitem(sys.modules, name, raising=False)
        importlib.invalidate_caches()
