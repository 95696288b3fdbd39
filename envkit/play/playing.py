"""Plays a game in a window or in the terminal, at a steady pace or key by key."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from envkit.play.game import Game
from envkit.play.pressed_keys import PressedKeys
from envkit.play.scene import Scene
from envkit.play.screen import Screen, open_screen, open_window
from envkit.time_step import TimeStep

__all__ = ["View", "in_terminal", "in_window"]

# How many seconds a key in a terminal counts as held.
_HOLD = 0.15


class View(NamedTuple):
    """Shows a game.

    Attributes:
        look: Returns the picture or text of a time step.
        keys: The explanation of the keys.
    """

    look: Callable[[TimeStep], Scene]
    keys: str

    def of(self, game: Game) -> Scene:
        """Returns the explanation of the keys while it is shown, otherwise the game."""
        return self.keys if game.explaining else self.look(game.time_step)


def in_terminal(game: Game, view: View, hz: float) -> None:
    """Plays in the terminal.

    Args:
        game: The game.
        view: What to show.
        hz: Steps per second; with 0, each step waits for a key.
    """
    with open_screen() as screen:
        try:
            if hz:
                _play_at_pace(game, view, screen, hz)
            else:
                _play_by_key(game, view, screen)
        except EOFError:  # the terminal is closed
            return


def in_window(
    game: Game,
    view: View,
    hz: float,
    *,
    title: str,
    pressed: Sequence[Sequence[str]] | None = None,
) -> None:
    """Plays in a window.

    Args:
        game: The game.
        view: What to show.
        hz: Steps per second; with 0, each step waits for a key.
        title: The title of the window.
        pressed: The keys to press; `None` reads the player's.
    """
    with open_window(title, repeats=not hz, seen=pressed is None) as window:
        window.open(view.look(game.time_step), len(game.lines()))
        window.show(view.of(game), *game.lines())
        if pressed is not None:
            window.press(pressed)
        while not game.over:
            pressed_now = window.tick(hz) if hz else window.wait()
            game.point(pressed_now.pointed)
            if hz:
                game.tick(pressed_now.keys, [chord[-1] for chord in pressed_now.chords])
            elif any(pointed.buttons for pointed in pressed_now.pointed):
                game.tick(())
            for chord in pressed_now.chords if not hz else ():
                if not game.over:
                    game.press(chord)
                    window.show(view.of(game), *game.lines())
            if not hz and pressed is None:
                game.release(pressed_now.down)
            game.over = game.over or pressed_now.closed
            window.show(view.of(game), *game.lines())


def _play_by_key(game: Game, view: View, screen: Screen) -> None:
    while not game.over:
        screen.show(view.of(game), *game.lines())
        for key in screen.pressed():
            if not game.over:
                game.press((key,))
                game.release()  # terminals report no release


def _play_at_pace(game: Game, view: View, screen: Screen, hz: float) -> None:
    keys = PressedKeys(max(1, round(hz * _HOLD)))
    due = time.monotonic()
    while not game.over:
        screen.show(view.of(game), *game.lines())
        # After a slow step, time continues from now and does not catch up.
        due = max(due + 1.0 / hz, time.monotonic())
        fresh: list[str] = []
        while (left := due - time.monotonic()) > 0:
            fresh += screen.pressed(left)
        fresh += screen.pressed(0.0)
        for key in fresh:
            keys.press(key)
        game.tick(keys.tick(), fresh)
