"""`AddRenderObservation`: pictures of the environment as observations."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from envkit import nest
from envkit.errors import CallOrderError
from envkit.specs.array_spec import BoundedArraySpec
from envkit.specs.validation import check_fits
from envkit.time_step import TimeStep
from envkit.types import Array, NestedArray, NestedSpec
from envkit.wrappers.arguments import checked_flag, checked_key
from envkit.wrappers.base import PyEnvironmentBaseWrapper
from envkit.wrappers.fresh_nests import fresh_nest
from envkit.wrappers.pictures.rendered import check_picture

__all__ = ["AddRenderObservation"]


class AddRenderObservation(PyEnvironmentBaseWrapper):
    """Shows what the environment renders, in place of its observation or beside it.

    Beside it there is a dictionary. An observation that is one already gets another
    entry, called `render_key`; any other is put under `obs_key`.

    The environment renders once for each time step. What size its pictures have, the
    wrapper learns from the first one. An environment that has not begun an episode is
    reset for that, and its state is brought back afterwards if it can save it.

    Example:
        >>> from envkit.envs import Catch
        >>> env = AddRenderObservation(Catch(batch_size=2), render_only=False)
        >>> {key: leaf.shape for key, leaf in env.reset().observation.items()}
        {'state': (2, 10, 5), 'pixels': (2, 160, 80, 3)}
    """

    _shown = ("render_only",)

    def __init__(
        self,
        env: Any,
        render_only: bool = True,
        render_key: str = "pixels",
        obs_key: str = "state",
        handle_auto_reset: bool = False,
    ) -> None:
        """Wraps an environment.

        Args:
            env: The environment to wrap.
            render_only: Whether the picture is all that is seen.
            render_key: What the picture is called in a dictionary.
            obs_key: What the observation is called there, if it is no dictionary.
            handle_auto_reset: As with every wrapper.
        """
        super().__init__(env, handle_auto_reset)
        self._render_only = checked_flag("render_only", render_only)
        self._render_key = checked_key("render_key", render_key)
        self._obs_key = checked_key("obs_key", obs_key)
        given = env.observation_spec()
        self._is_dict = isinstance(given, Mapping)
        if not self._render_only:
            self._check_keys(given)
        self._picture = self._picture_spec()
        self._spec = self._with_picture(given, self._picture)
        # Nothing is made of the leaves: this refuses keys that cannot be sorted.
        nest.flatten(self._spec)

    @property
    def render_only(self) -> bool:
        """Whether the picture is all that is seen."""
        return self._render_only

    def observation_spec(self) -> NestedSpec:
        """Returns the spec of the picture, or the specs of both."""
        return fresh_nest(self._spec)

    def _check_keys(self, given: NestedSpec) -> None:
        taken = list(given) if self._is_dict else [self._obs_key]
        if self._render_key in taken:
            what = (
                f"the observation of {type(self._env).__name__} has an entry of that "
                "name already"
                if self._is_dict
                else "obs_key is the same"
            )
            raise ValueError(
                f"render_key is {self._render_key!r}, but {what}. Choose another name."
            )

    def _picture_spec(self) -> BoundedArraySpec:
        picture = self._first_picture()
        check_picture(picture, self._dims, f"{type(self._env).__name__}.render()")
        rows = len(self._dims)
        return BoundedArraySpec(
            picture.shape[rows:], np.uint8, 0, 255, self._render_key
        )

    def _first_picture(self) -> Any:
        """Renders the environment as it is, or as it is right after a reset."""
        env = self._env
        try:
            env.current_time_step()
        except CallOrderError:
            before = _state_of(env)
        else:
            return self._rendered()
        env.reset()
        try:
            return self._rendered()
        finally:
            if before is not None:
                env.set_state(before)

    def _rendered(self) -> Any:
        try:
            return self._env.render("rgb_array")
        except NotImplementedError as error:
            raise ValueError(
                "AddRenderObservation needs an environment that renders 'rgb_array', "
                f"and {type(self._env).__name__} does not: {error}"
            ) from error

    def _with_picture(self, observation: Any, picture: Any) -> Any:
        if self._render_only:
            return picture
        if self._is_dict:
            return {self._render_key: picture, **observation}
        return {self._obs_key: observation, self._render_key: picture}

    def _see(self, time_step: TimeStep, rows: Array | None) -> TimeStep:
        # A copy, as some environments draw on the same canvas all the time.
        picture = np.array(self._env.render("rgb_array"))
        expected = (*self._dims, *self._picture.shape)
        if picture.shape != expected or picture.dtype != np.uint8:
            check_fits(
                picture,
                self._picture,
                subject=f"{type(self._env).__name__}.render() returned a picture that",
                outer_dims=self._dims,
                context="The first picture was of the size expected.",
            )
        seen: NestedArray = self._with_picture(time_step.observation, picture)
        return time_step._replace(observation=seen)


def _state_of(env: Any) -> Any:
    # Whatever the reason is why it cannot: then it stays as it is after a reset.
    with contextlib.suppress(Exception):
        return env.get_state()
    return None
