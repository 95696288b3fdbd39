"""Keeps names of environments between runs of `envkit list`.

Asking a library for its names means importing it, which takes seconds. So they are kept
in the user's cache folder, along with what they depend on:

- the locations and versions of envkit and the library;
- the library's plugins, which are entry points of groups such as `gymnasium.envs`;
- the files loaded to find the names, and their folders, with times and sizes: an edited
  checkout keeps its version number.

If one of these has changed, the library is asked again. A file that is broken or
another user's is ignored, and if nothing can be written, nothing is kept.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.util
import json
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

from envkit.extend import Plugins, scheme_named

__all__ = ["NamesCache"]

_SCHEMES = Plugins("envkit.schemes", "scheme")
# Only the user may read and write the files.
_MODE = 0o700


class NamesCache:
    """Reads and writes the files during one run of the command."""

    def __init__(self) -> None:
        """Reads nothing yet."""
        # Libraries share files; examine each once.
        self._stamp = functools.cache(_stamp)
        self._distributions = functools.cache(_distributions)

    def kept(self, scheme: str | None) -> dict[str, Any] | None:
        """Returns a scheme's kept answer if nothing it depends on has changed.

        Args:
            scheme: Its name; `None` for envkit's own environments.
        """
        # Whatever is wrong with a file, the library can be asked instead.
        with contextlib.suppress(
            OSError, ImportError, ValueError, LookupError, TypeError
        ):
            digest, _, text = _read(_path(scheme)).partition(b"\n")
            if digest == _digest(text):
                record = json.loads(text)
                is_same = record["needs"] == self._needs(scheme)
                if is_same and record["stamps"] == self._stamps(record["paths"]):
                    answer: dict[str, Any] = record["answer"]
                    return answer
        return None

    def keep(self, scheme: str | None, answer: dict[str, Any]) -> None:
        """Keeps a scheme's answer, in the process that imported the library.

        Args:
            scheme: Its name; `None` for envkit's own environments.
            answer: Plain data.
        """
        with contextlib.suppress(OSError, ImportError, ValueError):
            paths = _loaded()
            record = {
                "needs": self._needs(scheme),
                "paths": paths,
                "stamps": self._stamps(paths),
                "answer": answer,
            }
            text = json.dumps(record).encode()
            _write(_path(scheme), _digest(text) + b"\n" + text)

    def _needs(self, scheme: str | None) -> dict[str, Any]:
        """Returns locations and versions of envkit and the library, and its plugins."""
        plugin = None if scheme is None else _SCHEMES.find(scheme)
        found = None if scheme is None else scheme_named(scheme)
        modules, names, root = ["envkit"], {"envkit-rl"}, ""
        if plugin is not None and found is not None:
            root = found.package.partition(".")[0]
            modules += [re.split("[.:]", plugin.value)[0], root, found.beside]
            names |= {
                _normalized(re.split(r"[^\w.-]", text)[0]) for text in found.requires
            }
        # A folder of metadata has the name and version in its own name.
        return {
            "places": {name: _place(name) for name in modules if name},
            "offered by": "" if plugin is None else plugin.package,
            "distributions": [
                [folder, points if root and f"[{root}." in points else ""]
                for folder, points in self._distributions()
                if _normalized(folder.partition("-")[0]) in names
                or (root and f"[{root}." in points)
            ],
        }

    def _stamps(self, paths: list[str]) -> str:
        return _digest("\n".join(map(self._stamp, paths)).encode()).decode()


def _path(scheme: str | None) -> Path:
    folder = os.environ.get("XDG_CACHE_HOME", "")
    # The specification says to ignore a path that is not absolute.
    if not os.path.isabs(folder):
        folder = os.path.join(os.path.expanduser("~"), ".cache")
    if not os.path.isabs(folder):
        raise FileNotFoundError("The user has no home.")
    # Each Python has its own libraries.
    name = _digest(f"{sys.prefix}\n{sys.version}\n{scheme}".encode()).decode()[:32]
    return Path(folder, "envkit", "names", f"{name}.json")


def _read(path: Path) -> bytes:
    with open(path, "rb") as file:
        if not _is_ours(os.fstat(file.fileno())):
            raise PermissionError(f"{path} is not this user's.")
        return file.read()


def _write(path: Path, text: bytes) -> None:
    path.parent.mkdir(_MODE, parents=True, exist_ok=True)
    if not _is_ours(path.parent.stat()):
        return
    # Others may read and write it at the same time, and this process may be killed.
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
        try:
            file.write(text)
            file.close()
            os.replace(file.name, path)
        except BaseException:
            os.unlink(file.name)
            raise


def _is_ours(status: os.stat_result) -> bool:
    return not hasattr(os, "geteuid") or status.st_uid == os.geteuid()


def _distributions() -> list[tuple[str, str]]:
    """Lists the metadata folders, each with the content of its `entry_points.txt`.

    `importlib.metadata` would read all metadata just for the versions.
    """
    found = []
    for folder in map(Path, sys.path):
        for info in [*folder.glob("*.dist-info"), *folder.glob("*.egg-info")]:
            points = info / "entry_points.txt"
            text = points.read_text("utf-8", "replace") if points.is_file() else ""
            found.append((info.name, text))
    return sorted(found)


def _normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _place(module: str) -> str:
    spec = importlib.util.find_spec(module)
    if spec is None:
        return ""
    return spec.origin or ":".join(spec.submodule_search_locations or ())


def _loaded() -> list[str]:
    """Lists the files of loaded modules, and the folders of packages."""
    files = {
        file
        for name, module in list(sys.modules.items())
        if name.partition(".")[0] not in sys.stdlib_module_names
        and isinstance(file := getattr(module, "__file__", None), str)
        and os.path.isfile(file)
    }
    # A folder of libraries changes whenever one of them is installed.
    shared = {os.path.abspath(folder) for folder in sys.path}
    folders = {os.path.dirname(os.path.abspath(file)) for file in files} - shared
    return sorted(files | folders)


def _stamp(path: str) -> str:
    status = os.stat(path)
    # A folder's size depends on the file system.
    size = 0 if os.path.isdir(path) else status.st_size
    return f"{path}\0{status.st_mtime_ns}\0{size}"


def _digest(text: bytes) -> bytes:
    return hashlib.sha256(text).hexdigest().encode()
