"""Plays a game: until somebody quits, in a window or a terminal, or by given keys."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from envkit.cli.output import say
from envkit.cli.play_parts.game import Game
from envkit.cli.play_parts.held_keys import HeldKeys
from envkit.cli.play_parts.key_map import KeyMap
from envkit.cli.play_parts.scene import Scene
from envkit.cli.play_parts.screen import Screen, open_screen
from envkit.cli.play_parts.window import open_window
from envkit.time_step import TimeStep

__all__ = ["View", "by_keys", "in_terminal", "in_window", "pace_of"]

# How long a key counts that a terminal has told, in seconds.
_HOLD = 0.15
# What tells more steps in a second does not mean people.
_FASTEST = 240.0


class View(NamedTuple):
    """What there is to see of a game.

    Attributes:
        look: What shows a time step.
        keys: The keys, as text.
    """

    look: Callable[[TimeStep], Scene]
    keys: str

    def of(self, game: Game) -> Scene:
        """Returns the keys while they are explained, and otherwise the game."""
        return self.keys if game.explaining else self.look(game.time_step)


def pace_of(env: Any, keys: KeyMap) -> float:
    """Returns how many steps pass in a second; 0 if each waits for a key.

    That is what the environment tells, if there is an action for no key.
    """
    metadata = getattr(env, "metadata", None)
    told = metadata.get("render_fps") if isinstance(metadata, dict) else None
    if isinstance(told, int | float) and 0 < told <= _FASTEST and keys.has_idle:
        return float(told)
    return 0.0


def by_keys(game: Game, pressed: Sequence[Sequence[str]]) -> None:
    """Plays what is given, and prints a line for each of the keys."""
    for keys in pressed:
        if game.over:
            return
        game.press(keys)
        say(game.status())


def in_terminal(game: Game, view: View, fps: float) -> None:
    """Plays in the terminal."""
    with open_screen() as screen:
        try:
            if fps:
                _going_on(game, view, screen, fps)
            else:
                _waiting(game, view, screen)
        except EOFError:  # The terminal is gone, and with it the player.
            return


def in_window(
    game: Game,
    view: View,
    fps: float,
    *,
    title: str,
    pressed: Sequence[Sequence[str]] | None = None,
) -> None:
    """Plays in a window; with given keys it is as if somebody pressed them."""
    with open_window(title, repeats=not fps, seen=pressed is None) as window:
        window.open(view.look(game.time_step), len(game.lines()))
        window.show(view.of(game), *game.lines())
        if pressed is not None:
            window.press(pressed)
        while not game.over:
            told = window.tick(fps) if fps else window.wait()
            if fps:
                game.tick(
                    tuple(dict.fromkeys([*told.down, *map(_last, told.chords)])),
                    [chord[-1] for chord in told.chords],
                )
            for chord in told.chords if not fps else ():
                if not game.over:
                    game.press(chord)
                    window.show(view.of(game), *game.lines())
            game.over = game.over or told.closed
            window.show(view.of(game), *game.lines())


def _waiting(game: Game, view: View, screen: Screen) -> None:
    while not game.over:
        screen.show(view.of(game), *game.lines())
        for key in screen.pressed():
            if not game.over:
                game.press((key,))


def _going_on(game: Game, view: View, screen: Screen, fps: float) -> None:
    held = HeldKeys(max(1, round(fps * _HOLD)))
    due = time.monotonic()
    while not game.over:
        screen.show(view.of(game), *game.lines())
        # After a slow step time goes on from now, and is not made up for.
        due = max(due + 1.0 / fps, time.monotonic())
        fresh: list[str] = []
        while (left := due - time.monotonic()) > 0:
            fresh += screen.pressed(left)
        fresh += screen.pressed(0.0)
        held.press(fresh)
        game.tick(held.tick(), fresh)


def _last(chord: Sequence[str]) -> str:
    return chord[-1]
