"""Imports PySC2 on Python 3.11 and later, without other side effects.

Three things prevent a plain import:

- `s2clientprotocol` was generated for a years-old protobuf. Its modules describe every
  message twice: in bytes, which protobuf still uses, and in Python calls, which newer
  versions refuse. Here the bytes are read from the source, and the modules are built
  from them, as generated modules are today. They have the same messages and
  enumerations, and other packages' modules are not affected;
- its colours module calls `random.shuffle(colors, function)`, and since 3.11 Python
  takes no function: the module gets its own `shuffle`;
- its dependencies warn about deprecations, and pygame prints a greeting: neither is
  shown during the import.
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
# It imports all the others.
_ENVIRONMENT = "pysc2.env.sc2_env"
_GREETING = "PYGAME_HIDE_SUPPORT_PROMPT"

# Workers that are threads start at the same time.
_lock = threading.RLock()


def prepare() -> None:
    """Imports PySC2, which a plain import cannot do since Python 3.11.

    Call it before importing anything from `pysc2`, or after such an import has failed;
    calling it again does nothing. Other packages are not affected: protobuf is not
    changed, and temporary changes are undone.

    Afterwards PySC2's flags have their defaults until they are parsed, as by
    `absl.app.run`, so PySC2 also works in programs without flags.

    Each process needs its own call. Environments made by envkit do that; for others,
    pass `worker_setup="envkit.adapters.pysc2:prepare"`.

    Raises:
        MissingDependencyError: PySC2 is not installed.
        ImportError: The import fails in this way too; the message says why.
    """
    require("pysc2", needed_by="envkit.adapters.pysc2", extra="pysc2")
    _import_pysc2()
    from absl import flags

    # Reading a flag before flags are parsed is an error.
    if not flags.FLAGS.is_parsed():
        flags.FLAGS.mark_as_parsed()


def _import_pysc2() -> None:
    """Imports PySC2, unless it is imported already.

    Raises:
        ImportError: The import fails in this way too.
    """
    with _lock:
        if _ENVIRONMENT in sys.modules:
            return
        with _readable_protocol(), _without_greeting(), warnings.catch_warnings():
            # Warnings about scipy, pkg_resources and others are for the authors.
            warnings.simplefilter("ignore")
            try:
                _mend(importlib.import_module(_COLORS))
                importlib.import_module(_ENVIRONMENT)
            # Its many dependencies raise many kinds of errors.
            except Exception as error:
                raise ImportError(
                    f"PySC2 cannot be imported: {type(error).__name__}: {error}"
                ) from error


def _mend(colors: Any) -> None:
    """Gives the colours module a `_shuffle` that takes a function."""
    colors.random = types.SimpleNamespace(shuffle=_shuffle)


def _shuffle(values: MutableSequence[Any], function: Callable[[], float]) -> None:
    """Shuffles as Python 3.10 does, so that colours are the same in all versions.

    Args:
        values: The list to shuffle in place.
        function: Returns numbers from 0 up to, but not including, 1.

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
    """Keeps pygame from printing its greeting, unless the user decided otherwise."""
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
    """Makes the protocol's modules importable inside the context.

    Modules imported meanwhile stay imported.
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
        The bytes; `None` if it is not one of the old modules.
    """
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(func=ast.Attribute(attr="FileDescriptor"), keywords=keywords):
                for keyword in keywords:
                    if keyword.arg == "serialized_pb":
                        return _literal(keyword.value)
    return None


def _literal(node: ast.expr) -> bytes:
    # A call around the bytes: Python 2 had only one kind of string.
    literal = node.args[0] if isinstance(node, ast.Call) else node
    value = ast.literal_eval(literal)
    return value if isinstance(value, bytes) else str(value).encode("latin-1")


class _Finder(MetaPathFinder):
    """Finds the protocol's modules, and loads them differently."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,
    ) -> importlib.machinery.ModuleSpec | None:
        """Returns how to load a module; `None` for other packages' modules."""
        if not fullname.startswith(f"{_PROTOCOL}.") or not fullname.endswith("_pb2"):
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.origin is not None:
            spec.loader = _Loader(fullname, spec.origin)
        return spec


class _Loader(importlib.machinery.SourceFileLoader):
    """Makes modules from the bytes in their source."""

    def exec_module(self, module: ModuleType) -> None:
        """Fills a module with its messages."""
        name = module.__name__
        serialized = _serialized_file(self.get_source(name) or "")
        try:
            from google.protobuf.internal import builder
        except ImportError:  # an old protobuf, which reads the whole module
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
