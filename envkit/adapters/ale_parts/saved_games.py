"""`saves_all`: has a game of ale-py save what its own `clone_state` leaves out.

- Where actions stick, a frame repeats the action of the frame before, which is no part
  of ale-py's states and cannot be asked for. One frame that is played and taken back
  tells which it was: if it sticks, what comes of it does; if it does not, nobody ever
  sees that action again.
- The screen is that of the last frame played, whatever has been restored since.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

from envkit.types import Array

__all__ = ["saves_all"]

# So often an action is taken in a row that it has not stuck, for all that can be told.
_ENOUGH = 60


class _SavedGame(NamedTuple):
    """A state of ale-py, and what is not in it.

    Attributes:
        state: The state, with the generator of random numbers.
        next_frame: What the memory holds after another frame; empty if nothing sticks.
        screen: What is seen.
    """

    state: Any
    next_frame: bytes
    screen: Array


def saves_all(env: Any) -> Any:
    """Gives a game, in whatever wrappers, states that lack nothing; returns it."""
    env.unwrapped.__class__ = _kind_of_games()
    return env


@functools.cache
def _kind_of_games() -> Any:
    import ale_py
    from ale_py.env import AtariEnv

    noop = ale_py.Action.NOOP

    class SavedAtariEnv(AtariEnv):  # type: ignore[misc]  # a class of another library
        """An `AtariEnv` with states that lack nothing."""

        # What is seen until the next frame is played, if that is not on the screen.
        _saved_screen: Array | None = None
        # The action that was asked for last.
        _asked: Any = noop

        def reset(self, **kwargs: Any) -> Any:
            self._saved_screen, self._asked = None, noop
            return super().reset(**kwargs)

        def step(self, action: Any) -> Any:
            self._saved_screen = None
            if not self.continuous:
                self._asked = self._action_set[action]
            return super().step(action)

        def render(self) -> Any:
            if self._saved_screen is not None and self.render_mode == "rgb_array":
                return self._saved_screen.copy()
            return super().render()

        def get_state(self) -> _SavedGame:
            if self._sticks() and self.continuous:
                raise NotImplementedError  # Its actions are too many to try them.
            if self._saved_screen is None:
                self._saved_screen = self.ale.getScreenRGB()
            state = self.clone_state(include_rng=True)
            next_frame = self._next_frame(state) if self._sticks() else b""
            # The same array as the attribute, so that it is pickled once.
            return _SavedGame(state, next_frame, self._saved_screen)

        def set_state(self, state: _SavedGame) -> None:
            self._saved_screen = state.screen
            self.restore_state(state.state)
            if not state.next_frame:
                return
            # The one that was asked for last is the likeliest by far.
            for action in (self._asked, *self.ale.getLegalActionSet()):
                for _ in range(_ENOUGH):
                    self.ale.act(action, 1.0)
                if self._next_frame(state.state) == state.next_frame:
                    return

        def _sticks(self) -> bool:
            sticks: bool = self.ale.getFloat("repeat_action_probability") > 0
            return sticks

        def _next_frame(self, state: Any) -> bytes:
            """Returns what another frame would make of a state, and restores that."""
            self.restore_state(state)
            self.ale.act(noop, 1.0)
            memory: bytes = self.ale.getRAM().tobytes()
            self.restore_state(state)
            return memory

    return SavedAtariEnv
