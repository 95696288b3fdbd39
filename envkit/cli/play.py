"""`envkit play TARGET`: plays an environment, in a window or in the terminal."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from envkit.cli.numbers import number_within
from envkit.cli.output import say
from envkit.cli.target import Closing, add_target, seed_target, target_arguments

if TYPE_CHECKING:
    from envkit.cli.play_parts.game import Game
    from envkit.cli.play_parts.key_map import KeyMap

__all__ = ["EXAMPLE", "add_arguments", "run"]

EXAMPLE = "envkit play Catch --seed 7 --record runs/by_hand"

_FASTEST = 1000.0
_SHOW_END = 1.0  # seconds


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Says what the command takes."""
    add_target(parser)
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--window",
        action="store_true",
        help="play in a window, which needs pygame; so it is anyway if both are there",
    )
    where.add_argument(
        "--terminal", action="store_true", help="play in the terminal, in any case"
    )
    parser.add_argument(
        "--fps",
        type=number_within(
            _FASTEST,
            f"number of steps in a second, from 0 to {_FASTEST:g}",
            zero=True,
        ),
        metavar="N",
        help="so many steps pass in a second, whether a key is down or not; with 0 "
        "each waits for a key. Without it the environment's own speed counts, if it "
        "tells one and has an action for no key, and otherwise each step waits",
    )
    parser.add_argument("--seed", type=int, help="what is random depends on it")
    parser.add_argument(
        "--record",
        metavar="DIR",
        help="record what is played, for envkit.recording.Replay and envkit replay",
    )
    parser.add_argument(
        "--keys",
        metavar="KEYS",
        help="press these instead of waiting for any, and end: 'dda' or "
        "'d<left><up+space>.'; a line is printed for each",
    )


def run(arguments: argparse.Namespace) -> int:
    """Plays an environment until somebody quits."""
    from envkit.cli.play_parts.key_map import key_map
    from envkit.cli.play_parts.key_names import parse_keys
    from envkit.cli.play_parts.loops import pace_of
    from envkit.cli.play_parts.rendered_target import make_rendering
    from envkit.cli.play_parts.window import display_is_taken
    from envkit.wording import counted

    pressed = None if arguments.keys is None else parse_keys(arguments.keys)
    play = _chosen(arguments, pressed)
    env = make_rendering(arguments.target, target_arguments(arguments))
    with contextlib.ExitStack() as closes:
        closes.enter_context(Closing(env))
        if display_is_taken() and not arguments.window and pressed is None:
            arguments.terminal = True
            play = _chosen(arguments, pressed)
        if env.batched:
            raise ValueError(
                f"{arguments.target} is a batch of "
                f"{counted(env.batch_size, 'environment')}, and a single one, without "
                "a batch, can be played."
            )
        keys = key_map(env)
        fps = pace_of(env, keys) if arguments.fps is None else arguments.fps
        if pressed is not None:  # They are pressed one after the other.
            fps = 0.0
        if arguments.record is not None:
            from envkit.recording.record import Record

            seed_target(arguments, env)
            env = Record(env, arguments.record)
            closes.pop_all()  # Record closes the environment, too.
            closes.enter_context(Closing(env))
        elif arguments.seed is not None:
            env.seed(arguments.seed)
        _play(env, keys, fps, play, pressed)
    if arguments.record is not None:
        say(f"recorded in {arguments.record}")
    return 0


def _play(
    env: Any, keys: KeyMap, fps: float, play: Callable[..., None], pressed: Any
) -> None:
    from envkit.cli.play_parts.game import Game
    from envkit.cli.play_parts.loops import View
    from envkit.cli.play_parts.scene import view_of

    game = Game(
        env,
        keys,
        pause_after=round(fps * _SHOW_END),
        explaining=pressed is None,
    )
    look, why = view_of(env)
    table = _table(game, keys, fps, why)
    if pressed is not None:
        say(*table.split("\n"))
        sys.stdout.flush()
    try:
        play(game, View(look, table), fps)
    finally:
        say(game.summary())


def _chosen(
    arguments: argparse.Namespace, pressed: list[tuple[str, ...]] | None
) -> Callable[[Game, Any, float], None]:
    """Returns what plays: in a window, in the terminal, or keys alone."""
    from envkit.cli.play_parts import loops
    from envkit.cli.play_parts.screen import is_terminal

    asked = pressed is None and not arguments.terminal
    if arguments.window or (asked and _has_window()):
        title = f"envkit play {arguments.target}"
        return lambda *given: loops.in_window(*given, title=title, pressed=pressed)
    if pressed is not None:
        return lambda game, _, __: loops.by_keys(game, pressed)
    if not is_terminal():
        raise ValueError(
            "There is no terminal to play in: input or output is a file or a pipe. "
            "--keys KEYS says what to press, and --window plays in a window."
        )
    return loops.in_terminal


def _has_window() -> bool:
    from importlib.util import find_spec

    from envkit.window import has_display

    return has_display() and find_spec("pygame") is not None


def _table(game: Game, keys: KeyMap, fps: float, why: str) -> str:
    rows: Sequence[tuple[str, str]] = keys.table()
    width = max(len(key) for key, _ in rows)
    lines = [f"  {key:{width}}   {label}" for key, label in rows]
    pace = f"{fps:g} steps a second" if fps else "each step waits for a key"
    lines += ["", f"  {game.controls.text()}", f"  {pace}"]
    return "\n".join([*lines, f"  observations are shown: {why}"] if why else lines)
