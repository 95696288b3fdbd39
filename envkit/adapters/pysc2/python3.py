"""Imports PySC2 under Python 3.11 and later, and changes nothing else.

Three things prevent a plain import:

- `s2clientprotocol` was generated for a protobuf of years ago. Its modules describe
  every message twice: in bytes, as protobuf does to this day, and in Python calls,
  which newer versions refuse. Here the bytes are read from the source, and the modules
  are made of those, as generated ones are today. They have the same messages and
  enumerations, and the modules of other packages are not affected;
- its module of colours calls `random.shuffle(colors, function)`, and Python has taken
  no such function since 3.11: that module gets a `shuffle` of its own;
- libraries that it needs warn that parts of them are going to be removed, and pygame
  prints a greeting: neither is shown during the import.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import importlib.machinery
import os
import sys
import threading
import types
import warnings
from collections.abc import Callable, Iterator, MutableSequence, Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType
from typing import Any

from envkit.adapters.foreign import require

__all__ = ["prepare"]

_COLORS = "pysc2.lib.colors"
# It imports all the rest.
_ENVIRONMENT = "pysc2.env.sc2_env"
_GREETING = "PYGAME_HIDE_SUPPORT_PROMPT"

# Workers that are threads begin at the same time.
_lock = threading.RLock()


def prepare() -> None:
    """Imports PySC2, which a plain import does not do since Python 3.11.

    Call it before anything of `pysc2` is imported, or after such an import has failed;
    calling it again does nothing. Other packages are not affected: protobuf stays as it
    is, and what had to be changed for the import is changed back.

    Flags of PySC2 are at their defaults afterwards, until they are parsed as
    `absl.app.run` does, so that it runs in programs without flags, too.

    Each process needs its own call. Environments that envkit makes do that; others can
    be given `worker_setup="envkit.adapters.pysc2:prepare"`.

    Raises:
        MissingDependencyError: PySC2 is not installed.
        ImportError: It does not import in this way either; the message says why.
    """
    require("pysc2", needed_by="envkit.adapters.pysc2", extra="pysc2")
    _import_pysc2()
    from absl import flags

    # To read a flag before flags are parsed is an error.
    if not flags.FLAGS.is_parsed():
        flags.FLAGS.mark_as_parsed()


def _import_pysc2() -> None:
    """Imports PySC2; if that has been done, does nothing.

    Raises:
        ImportError: It does not import in this way either.
    """
    with _lock:
        if _ENVIRONMENT in sys.modules:
            return
        with _readable_protocol(), _without_greeting(), warnings.catch_warnings():
            # They are about scipy, pkg_resources and others, and for the authors.
            warnings.simplefilter("ignore")
            try:
                _mend(importlib.import_module(_COLORS))
                importlib.import_module(_ENVIRONMENT)
            # Because its many dependencies raise errors of many kinds.
            except Exception as error:
                raise ImportError(
                    f"PySC2 cannot be imported: {type(error).__name__}: {error}"
                ) from error


def _mend(colors: Any) -> None:
    """Gives the module of colours a `_shuffle` that takes a function."""
    colors.random = types.SimpleNamespace(shuffle=_shuffle)


def _shuffle(values: MutableSequence[Any], function: Callable[[], float]) -> None:
    """Shuffles as Python 3.10 does, so that the colours are those of all versions.

    Args:
        values: What to _shuffle, in place.
        function: Returns numbers from 0 to 1, without 1.

    Example:
        >>> values = [0, 1, 2, 3]
        >>> _shuffle(values, lambda: 0.5)
        >>> values
        [0, 3, 1, 2]
    """
    for last in range(len(values) - 1, 0, -1):
        other = int(function() * (last + 1))
        values[last], values[other] = values[other], values[last]


@contextlib.contextmanager
def _without_greeting() -> Iterator[None]:
    """Keeps pygame from printing a line, unless the user has said something else."""
    if _GREETING in os.environ:
        yield
        return
    os.environ[_GREETING] = "1"
    try:
        yield
    finally:
        del os.environ[_GREETING]


# The package of the modules.
_PROTOCOL = "s2clientprotocol"


@contextlib.contextmanager
def _readable_protocol() -> Iterator[None]:
    """Makes the modules of the protocol importable, for as long as it lasts.

    What has been imported stays.
    """
    finder = _Finder()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


def _serialized_file(source: str) -> bytes | None:
    """Returns the bytes that describe all messages of an old module.

    Example:
        >>> _serialized_file("a = d.FileDescriptor(name='b', serialized_pb=_b('c'))")
        b'c'

    Args:
        source: The module.

    Returns:
        The bytes; `None` if the module is not one of the old ones.
    """
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(func=ast.Attribute(attr="FileDescriptor"), keywords=keywords):
                for keyword in keywords:
                    if keyword.arg == "serialized_pb":
                        return _literal(keyword.value)
    return None


def _literal(node: ast.expr) -> bytes:
    # Between brackets, for Python 2 had only the one kind of string.
    literal = node.args[0] if isinstance(node, ast.Call) else node
    value = ast.literal_eval(literal)
    return value if isinstance(value, bytes) else str(value).encode("latin-1")


class _Finder(MetaPathFinder):
    """Finds the modules of the protocol, and has them loaded in another way."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,
    ) -> importlib.machinery.ModuleSpec | None:
        """Returns how to load a module; `None` for those of other packages."""
        if not fullname.startswith(f"{_PROTOCOL}.") or not fullname.endswith("_pb2"):
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.origin is not None:
            spec.loader = _Loader(fullname, spec.origin)
        return spec


class _Loader(importlib.machinery.SourceFileLoader):
    """Makes modules of the bytes in their source."""

    def exec_module(self, module: ModuleType) -> None:
        """Fills a module with its messages."""
        name = module.__name__
        serialized = _serialized_file(self.get_source(name) or "")
        try:
            from google.protobuf.internal import builder
        except ImportError:  # A protobuf of those days, which reads all of it.
            serialized = None
        if serialized is None:
            super().exec_module(module)
            return
        from google.protobuf import descriptor_pb2, descriptor_pool

        # The modules that this one would have imported.
        needed = descriptor_pb2.FileDescriptorProto.FromString(serialized).dependency
        for file in needed:
            importlib.import_module(
                file.removesuffix(".proto").replace("/", ".") + "_pb2"
            )
        content = vars(module)
        descriptor = descriptor_pool.Default().AddSerializedFile(serialized)
        content["DESCRIPTOR"] = descriptor
        builder.BuildMessageAndEnumDescriptors(descriptor, content)
        builder.BuildTopDescriptorsAndMessages(descriptor, name, content)
