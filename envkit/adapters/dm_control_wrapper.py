"""`DmControlWrapper`: an environment of dm_control as an envkit environment."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from envkit.adapters.dm_env_wrapper import DmEnvWrapper

__all__ = ["DmControlWrapper"]


class DmControlWrapper(DmEnvWrapper):
    """Makes an envkit environment of one of dm_control's, as that of TF-Agents does.

    It is a `DmEnvWrapper` in which everything that is float64 becomes float32.
    """

    _hint = " dm_control.suite.load(domain, task) makes one."

    def __init__(
        self,
        env: Any,
        render_kwargs: Mapping[str, Any] | None = None,
        *,
        as_float32: Collection[str] = ("observation", "action", "reward", "discount"),
    ) -> None:
        """Wraps an environment; closing the wrapper closes it.

        Args:
            env: An environment of dm_control.
            render_kwargs: Keyword arguments for `physics.render`: `height`, `width`,
                `camera_id` and others.
            as_float32: Of what float64 becomes float32; `()` keeps every digit.
        """
        super().__init__(env, render_kwargs, as_float32=as_float32)
