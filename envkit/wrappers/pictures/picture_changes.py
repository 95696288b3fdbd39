"""`PictureChanges`: the base of wrappers that change the pictures in observations."""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NoReturn, TypeAlias

import numpy as np

from envkit import nest
from envkit.specs.array_spec import ArraySpec, BoundedArraySpec
from envkit.wording import listed
from envkit.wrappers.observations.leaf_changes import Change, LeafChanges, place

__all__ = ["Keys", "PictureChanges", "bounded_by"]

# Which entries of a nest are meant: one, several, or all that can be.
Keys: TypeAlias = str | int | Sequence[str | int] | None


class PictureChanges(LeafChanges):
    """Changes the pictures of an observation, and leaves the rest of it as it is.

    A subclass calls `_change_pictures` in its constructor.
    """

    # What a subclass takes for a picture, in words.
    _kind: ClassVar[str] = ""

    @abc.abstractmethod
    def _is_picture(self, spec: Any) -> bool:
        """Says whether a leaf is of the kind that the wrapper changes."""

    def _change_pictures(
        self, keys: Keys, change: Callable[[ArraySpec, str], tuple[ArraySpec, Change]]
    ) -> None:
        """Lets `change` say of each picture's spec and path what it becomes."""
        specs = dict(nest.flatten_with_paths(self._env.observation_spec()))
        pictures = self._chosen(keys, specs)
        for path in pictures:
            if not self._is_picture(specs[path]):
                self._refuse_leaf(specs[path], path)

        def prepare(spec: ArraySpec, path: str) -> tuple[ArraySpec, Change]:
            return change(spec, path) if path in pictures else (spec, np.asarray)

        self._prepare(prepare)

    def _chosen(self, keys: Keys, specs: dict[str, Any]) -> list[str]:
        """Returns where the leaves are that are to be pictures."""
        name, whose = type(self).__name__, type(self._env).__name__
        is_nest = list(specs) != [""]
        if keys is None:
            found = [path for path in specs if self._is_picture(specs[path])]
            if is_nest and not found:
                raise ValueError(
                    f"{name} changes {self._kind}, and the observation of {whose} has "
                    f"none. It has {listed(specs)}."
                )
            return found if is_nest else [""]
        if not is_nest:
            raise ValueError(
                f"{name} was given keys={keys!r}, but the observation of {whose} is a "
                "single array. Leave keys out."
            )
        chosen = []
        for key in [keys] if isinstance(keys, str | int) else keys:
            below = [path for path in specs if _is_below(path, key)]
            if not below:
                raise ValueError(
                    f"{name} was given the key {key!r}, and the observation of {whose} "
                    f"has nothing there. It has {listed(specs)}."
                )
            chosen += below
        return chosen

    def _refuse_leaf(self, spec: Any, path: str) -> NoReturn:
        message = (
            f"{type(self).__name__} changes pictures, and the observation of "
            f"{type(self._env).__name__}{place(path)} is none.\n\n"
            f"  expected   {self._kind}\n"
            f"  got        {spec!r}"
        )
        is_flat = isinstance(spec, ArraySpec) and len(spec.shape) in (2, 3)
        if is_flat and spec.dtype != np.uint8:
            message += "\n\nDtypeObservation casts observations to another dtype."
        raise ValueError(message)


def _is_below(path: str, key: Any) -> bool:
    """Says whether a leaf is what an entry of the nest holds, or a part of it."""
    for entry in (f"[{key!r}]", f".{key}"):
        if path == entry or path.startswith((f"{entry}[", f"{entry}.")):
            return True
    return False


def bounded_by(spec: ArraySpec, shape: tuple[int, ...], change: Change) -> ArraySpec:
    """Makes the spec of pictures that are changed; their bounds are, too.

    So the change must keep order: of larger values it makes no smaller ones.
    """
    if not isinstance(spec, BoundedArraySpec):
        return spec.replace(shape=shape)
    low, high = (
        bound if bound.ndim == 0 else change(np.broadcast_to(bound, spec.shape))
        for bound in (spec.minimum, spec.maximum)
    )
    return BoundedArraySpec(shape, spec.dtype, low, high, spec.name)
