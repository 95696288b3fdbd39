"""Imports the messages of StarCraft II's protocol, whose modules are too old.

`s2clientprotocol` was generated for a protobuf of years ago. Its modules describe every
message twice: in bytes, as protobuf does to this day, and in Python calls, which newer
versions refuse. Here the bytes are read from the source, and the modules are made of
those, as generated ones are today. They have the same messages and enumerations.

Nothing else in the process notices: neither what kind of protobuf is loaded, nor the
modules of other packages.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import importlib.machinery
import sys
from collections.abc import Iterator, Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType

__all__ = ["PROTOCOL", "readable_protocol", "serialized_file"]

# The package of the modules.
PROTOCOL = "s2clientprotocol"


@contextlib.contextmanager
def readable_protocol() -> Iterator[None]:
    """Makes the modules of the protocol importable, for as long as it lasts.

    What has been imported stays.
    """
    finder = _Finder()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


def serialized_file(source: str) -> bytes | None:
    """Returns the bytes that describe all messages of an old module.

    Example:
        >>> serialized_file("a = d.FileDescriptor(name='b', serialized_pb=_b('c'))")
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
        if not fullname.startswith(f"{PROTOCOL}.") or not fullname.endswith("_pb2"):
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
        serialized = serialized_file(self.get_source(name) or "")
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
