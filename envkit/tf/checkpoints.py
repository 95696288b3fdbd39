"""Saves a Python environment's state in a checkpoint: `CheckpointedState`."""

from __future__ import annotations

import pickle
import warnings
from typing import Any, NamedTuple

import tensorflow as tf

from envkit.extend import describe
from envkit.provenance import MadeBy, VersionWarning, check_made_by

__all__ = ["CheckpointedState", "SavedState", "restore_state", "state_bytes"]


class SavedState(NamedTuple):
    """Holds a state as stored in a checkpoint.

    Attributes:
        state: The result of `get_state`.
        provenance: The environment's provenance; `None` if it has none.
    """

    state: Any
    provenance: dict[str, Any] | None


class CheckpointedState(
    tf.train.experimental.PythonState  # type: ignore[misc]  # TensorFlow has no types
):
    """Saves a Python environment in a checkpoint: single, batched or a pool.

    Saving calls `get_state`, restoring calls `set_state`; the same actions then lead to
    the same time steps. A `TFPyEnvironment` does this without a `CheckpointedState`.
    The checkpoint includes the environment's provenance, and restoring a state from
    another version warns.

    The state in a checkpoint is pickled. Restore only files that you trust, as with
    every pickle.

    Example:
        >>> import tempfile
        >>> import envkit
        >>> env = envkit.make("Bandit", batch_size=2, seed=1)
        >>> first = env.reset()
        >>> checkpoint = tf.train.Checkpoint(env=CheckpointedState(env))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = checkpoint.save(folder + "/environment")
        ...     reward = env.step([0, 1]).reward
        ...     status = checkpoint.restore(path)
        >>> bool((env.step([0, 1]).reward == reward).all())
        True
    """

    def __init__(self, environment: Any) -> None:
        """Keeps the environment whose state is saved and restored."""
        if isinstance(environment, type) or not hasattr(environment, "get_state"):
            raise TypeError(
                "CheckpointedState must be given an environment, got "
                f"{describe(environment)}."
            )
        self._environment = environment

    def serialize(self) -> bytes:
        """Returns the environment's state; TensorFlow calls this to save it."""
        return state_bytes(self._environment)

    def deserialize(self, string_value: bytes) -> None:
        """Restores a state; TensorFlow calls this when it restores a checkpoint."""
        restore_state(self._environment, string_value)


def state_bytes(environment: Any) -> bytes:
    """Returns an environment's state and provenance as bytes."""
    state = environment.get_state()
    ask = getattr(environment, "provenance", None)
    saved = SavedState(state, ask() if callable(ask) else None)
    return pickle.dumps(saved, pickle.HIGHEST_PROTOCOL)


def restore_state(environment: Any, data: bytes) -> None:
    """Restores a state returned by `state_bytes`."""
    saved = pickle.loads(data)
    if not isinstance(saved, SavedState):  # it was saved before there was provenance
        environment.set_state(saved)
        return
    if saved.provenance is not None:
        known = saved.provenance
        check_made_by(environment, MadeBy(known["id"], known["envkit"]))
    with warnings.catch_warnings():
        # In a batch, each row would warn again.
        warnings.simplefilter("ignore", VersionWarning)
        environment.set_state(saved.state)
