"""The state of an adapter whose author has not written how to save it.

It is all that the adapter holds, the library's environment with it, pickled together.
Where that does not pickle, an environment may offer to save its state by itself; see
`envkit.adapters.snapshot`.
"""

from __future__ import annotations

import types
from typing import Any, NamedTuple

from envkit.adapters.env_adapters.author import Author
from envkit.adapters.snapshot import (
    Snapshot,
    offer_of,
    restore_snapshot,
    take_snapshot,
)

__all__ = ["AdapterState", "restored", "saved"]


class AdapterState(NamedTuple):
    """What an adapter holds at one moment.

    Attributes:
        kind: The name of its class.
        attributes: What the author keeps: a snapshot, or what `get_state` returned.
        offered: Whether the environment had to save its state by itself.
        beside: What envkit keeps about the adapter.
    """

    kind: str
    attributes: Any
    offered: bool
    beside: Any


def saved(author: Author, attributes: dict[str, Any]) -> tuple[Snapshot, bool]:
    """Saves attributes of an adapter.

    Functions and classes that it was made with are no part of its state.

    Returns:
        The snapshot, and whether the environment had to save its state by itself.

    Raises:
        NotImplementedError: Something that it holds does not pickle.
    """
    name, kept = author.name, author.staying
    holder = types.SimpleNamespace(**attributes)
    try:
        return take_snapshot(holder, name, layers=[holder], kept=kept), False
    except NotImplementedError as error:
        cause = error.__cause__
        instance = attributes.get("env_instance")
        if _offers(instance):
            layers = [holder, instance]
            return take_snapshot(holder, name, layers=layers, kept=kept), True
    raise NotImplementedError(
        f"{name} cannot save its state: something that it holds does not pickle: "
        f"{cause}. If the library can save states, write get_state() and "
        "set_state(state), which ask it to."
    ) from cause


def _offers(instance: Any) -> bool:
    return hasattr(instance, "__dict__") and offer_of(instance) is not None


def restored(
    author: Author, attributes: dict[str, Any], state: Snapshot, offered: bool
) -> dict[str, Any]:
    """Returns the attributes of an adapter as they were when they were saved.

    Args:
        author: Of the adapter, which may be another one than that which was saved.
        attributes: Its attributes as they are.
        state: What `saved` returned.
        offered: What it returned besides.
    """
    holder = types.SimpleNamespace(**attributes)
    layers = [holder, attributes["env_instance"]] if offered else [holder]
    restore_snapshot(holder, author.name, state, layers=layers, kept=author.staying)
    return dict(vars(holder))
