"""`envkit play TARGET`: plays an environment, in a window or in the terminal."""

from __future__ import annotations

import argparse
import contextlib
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any

from envkit._shared.quiet_sdl import has_display
from envkit.cli.output import say
from envkit.cli.parser import Renamed
from envkit.cli.recorder import FILM_HZ, add_output, check_output, recorded
from envkit.cli.target import (
    Closing,
    add_hz,
    add_seed,
    add_target,
    make_rendering,
    seed_recording,
    seed_target,
    target_arguments,
)
from envkit.extend import counted
from envkit.play.game import Game
from envkit.play.key_map import KeyMap, key_map, pace_of
from envkit.play.keys import NAMED, key_text, parse_keys
from envkit.play.playing import View, in_terminal, in_window
from envkit.play.scene import view_of
from envkit.play.screen import display_is_taken, is_terminal
from envkit.play.shortcuts import PLAYING, Shortcuts

__all__ = ["EXAMPLE", "add_arguments", "by_keys", "run"]

EXAMPLE = "envkit play Catch --seed 7 --record runs/by_hand"

_SHOW_END = 1.0  # seconds


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command."""
    add_target(parser, pools=False)
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--window",
        action="store_true",
        help="play in a window (default: if there is a display and pygame)",
    )
    where.add_argument(
        "--terminal",
        action="store_true",
        help="play in the terminal (default: if no window can be opened)",
    )
    add_hz(
        parser,
        "steps per second, with or without a key; 0 waits for a key before each step "
        "(default: the environment's own speed, if it has one and an action for no "
        "key; else 0)",
    )
    parser.add_argument("--fps", action=Renamed, const="--hz")
    add_seed(
        parser,
        "the environment's seed (default: none, and a random one with --record)",
    )
    add_output(parser, "--record", default="nothing is recorded")
    parser.add_argument(
        "--keys",
        metavar="KEYS",
        help="press these keys, print a line for each, and quit: 'dda', "
        "'d<left><up+space>.' (default: your keys)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Plays an environment until the player quits."""
    pressed = None if arguments.keys is None else parse_keys(arguments.keys)
    play = _chosen(arguments, pressed)
    kind = ""
    if arguments.record is not None:
        hz = arguments.hz or FILM_HZ
        kind = check_output(
            arguments.record,
            hz,
            overwrite=arguments.overwrite,
            pictures=arguments.pictures,
        )
    elif arguments.pictures:
        raise ValueError("--pictures has no effect without --record: name its path.")
    env = make_rendering(arguments.target, target_arguments(arguments))
    with contextlib.ExitStack() as closes:
        closes.enter_context(Closing(env))
        if display_is_taken() and not arguments.window and pressed is None:
            arguments.terminal = True
            play = _chosen(arguments, pressed)
        if env.batched:
            raise ValueError(
                f"{arguments.target} is a batch of "
                f"{counted(env.batch_size, 'environment')}; only a single one can be "
                "played."
            )
        keys = key_map(env)
        hz = pace_of(env, keys) if arguments.hz is None else arguments.hz
        if pressed is not None:  # press them one after another
            hz = 0.0
            _check_keys(arguments.keys, pressed, keys)
        if arguments.record is None:
            if arguments.seed is not None:
                env.seed(arguments.seed)
            _play(env, keys, hz, play, pressed)
            return 0
        seed_target(arguments, env)
        ended: BaseException | None = None
        with recorded(
            env,
            arguments.record,
            kind,
            hz or FILM_HZ,
            arguments.target,
            pictures=arguments.pictures,
        ) as recording:
            closes.pop_all()  # the recorder closes it too
            seed_recording(arguments, recording)
            try:
                _play(recording, keys, hz, play, pressed)
            except BaseException as error:  # keep what was played so far
                ended = error
    if arguments.record.exists():  # a film without pictures is not written
        say(f"recorded in {arguments.record}")
    if ended is not None:
        raise ended
    return 0


def _play(
    env: Any, keys: KeyMap, hz: float, play: Callable[..., None], pressed: Any
) -> None:
    game = Game(
        env,
        keys,
        pause_after=round(hz * _SHOW_END),
        explaining=pressed is None,
    )
    look, why = view_of(env)
    table = _table(game, keys, hz, why)
    if pressed is not None:
        say(*table.split("\n"))
        sys.stdout.flush()
    try:
        play(game, View(look, table), hz)
    finally:
        say(game.summary())


def _check_keys(text: str, pressed: Sequence[Sequence[str]], keys: KeyMap) -> None:
    """Raises for the first key without an action or a control."""
    shortcuts = Shortcuts(PLAYING, keys.keys)
    words = re.findall(r"(?<!<)\b\w+\b(?!>)", text.lower())
    names = [f"<{word}>" for word in words if word in NAMED]
    hint = f" A name stands in angle brackets: {names[0]}." if names else ""
    for chord in pressed:
        for key in chord:
            if not keys.knows(key) and shortcuts.of(key) is None:
                actions = [f"{shown} ({label})" for shown, label in keys.table()]
                raise ValueError(
                    f"The key {key_text(key)!r} of --keys means nothing here. These "
                    f"do: {'; '.join(actions)}; {shortcuts.text()}.{hint}"
                )


def _chosen(
    arguments: argparse.Namespace, pressed: list[tuple[str, ...]] | None
) -> Callable[[Game, Any, float], None]:
    """Returns the function that plays: in a window, in the terminal, or by keys."""
    asked = pressed is None and not arguments.terminal
    if arguments.window or (asked and _has_window()):
        title = f"envkit play {arguments.target}"
        return lambda *given: in_window(*given, title=title, pressed=pressed)
    if pressed is not None:
        return lambda game, _, __: by_keys(game, pressed)
    if not is_terminal():
        raise ValueError(
            "There is no terminal to play in: input or output is a file or a pipe. "
            "Pass --keys with the keys to press, or --window to play in a window."
        )
    return in_terminal


def _has_window() -> bool:
    from importlib.util import find_spec

    return has_display() and find_spec("pygame") is not None


def _table(game: Game, keys: KeyMap, hz: float, why: str) -> str:
    rows: Sequence[tuple[str, str]] = keys.table()
    width = max(len(key) for key, _ in rows)
    lines = [f"  {key:{width}}   {label}" for key, label in rows]
    pace = f"{hz:g} steps a second" if hz else "each step waits for a key"
    lines += ["", f"  {game.shortcuts.text()}", f"  {pace}"]
    if not getattr(keys, "is_named", True):
        lines.append("  the environment does not say what its actions mean")
    return "\n".join([*lines, f"  showing observations: {why}"] if why else lines)


def by_keys(game: Game, pressed: Sequence[Sequence[str]]) -> None:
    """Plays given keys, and prints a line for each."""
    for keys in pressed:
        if game.over:
            return
        game.press(keys)
        say(game.status())
