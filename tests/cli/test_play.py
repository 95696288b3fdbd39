"""`envkit play`, as a command, in a terminal and in a window."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from envkit.cli.main import main
from envkit.recording import Recording, Replay
from envkit.testing import CountingEnv
from tests.cli.pseudo_terminal import in_terminal
from tests.waiting import PATIENCE

HERE = __name__


def test_keys_are_played_and_each_is_a_line(capsys):
    status = main(
        ["play", "Catch", "--arg", "rows=3", "--seed", "7", "--keys", "ddaaq"]
    )

    assert 0 == status
    assert [
        "  ←, a, 0   0 left",
        "  1         1 stay",
        "  →, d, 2   2 right",
        "  .         wait: no key",
        "",
        "  space pause   r reset   ? keys   q quit",
        "  each step waits for a key",
        "episode 1   step 1   reward 0   return 0",
        "episode 1   step 2   reward 1   return 1   terminated",
        "episode 2   step 0   reward 0   return 0",
        "episode 2   step 1   reward 0   return 0",
        "episode 2   step 1   reward 0   return 0",
        "1 whole episode, 3 steps, mean return 1",
    ] == capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("keys", ["z", "dw", "<left+z>"])
def test_an_unknown_key_is_refused_with_the_known_ones(keys, tmp_path, capsys):
    status = main(
        ["play", "Catch", "--keys", keys, "--record", str(tmp_path / "played")]
    )

    key = "w" if "w" in keys else "z"
    assert 2 == status
    assert (
        "",
        f"envkit play: The key '{key}' of --keys means nothing here. These do: "
        "←, a, 0 (0 left); 1 (1 stay); →, d, 2 (2 right); . (wait: no key); space "
        "pause r reset ? keys q quit.\n",
    ) == tuple(capsys.readouterr())
    assert [] == list(tmp_path.iterdir())


def test_the_name_of_a_key_without_brackets_is_shown_with_them(capsys):
    assert 2 == main(["play", "Catch", "--keys", "Right right"])
    assert capsys.readouterr().err.endswith(
        " A name stands in angle brackets: <right>.\n"
    )


def test_a_played_game_is_recorded(tmp_path, capsys):
    path = tmp_path / "played"
    status = main(["play", "Catch-v1", "--keys", "ddaa", "--record", str(path)])

    assert 0 == status
    assert f"recorded in {path}\n" in capsys.readouterr().out
    replayed = Replay(path)
    replayed.reset()
    actions = []
    for _ in range(4):
        actions.append(int(replayed.recorded_action()))
        replayed.step(0)
    assert [2, 2, 0, 0] == actions
    assert 0 == main(["replay", "--check", str(path)])


def test_a_played_game_is_recorded_with_pictures(tmp_path):
    path = tmp_path / "played"
    options = ["--keys", "da", "--record", str(path), "--pictures"]
    assert 0 == main(["play", "Catch-v1", *options])
    episode = next(Recording(path).episodes())
    assert [(160, 80, 3)] * 3 == [episode.picture(step).shape for step in range(3)]


def test_pictures_need_a_recording(capsys):
    assert 2 == main(["play", "Catch-v1", "--keys", "d", "--pictures"])
    assert "--pictures has no effect without --record" in capsys.readouterr().err


def test_a_played_game_is_filmed(tmp_path, capsys):
    """As `envkit record -o` does, by the ending of the name."""
    pytest.importorskip("imageio", reason="imageio is not installed")
    from tests.wrappers.films import gif

    path = tmp_path / "played.gif"
    assert 0 == main(["play", "Catch", "--keys", "ddaa", "--record", str(path)])
    assert f"recorded in {path}\n" in capsys.readouterr().out
    assert 5 == len(gif(path))
    assert [path] == list(tmp_path.iterdir())


def test_an_existing_output_is_only_replaced_with_overwrite(tmp_path, capsys):
    path = str(tmp_path / "played")
    playing = ["play", "Catch", "--keys", "d", "--record", path]
    assert 0 == main(playing)
    capsys.readouterr()

    assert 2 == main(playing)
    assert (
        f"envkit play: {path!r} exists already. --overwrite replaces it, once the new "
        "one is complete.\n"
    ) == capsys.readouterr().err
    assert 0 == main([*playing, "--overwrite"])


def test_episodes_are_kept_when_the_environment_breaks(tmp_path, capsys):
    path = tmp_path / "played"
    playing = ["play", f"{HERE}:make_fragile", "--keys", "000", "--record", str(path)]
    assert 2 == main(playing)
    printed = capsys.readouterr()
    assert f"recorded in {path}\n" in printed.out
    assert "envkit play: RuntimeError: It broke. (--debug shows where)\n" == printed.err
    assert 2 == len(next(iter(Recording(path).episodes())))


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            ["Catch", "--terminal"],
            "There is no terminal to play in: input or output is a file or a pipe. "
            "Pass --keys with the keys to press, or --window to play in a window.",
        ),
        (
            ["Catch", "--arg", "batch_size=4", "--keys", "d"],
            "Catch is a batch of 4 environments; only a single one can be played.",
        ),
        (
            ["Catch", "--arg", "batch_size=1", "--keys", "d"],
            "Catch is a batch of 1 environment; only a single one can be played.",
        ),
        (["Catch", "--keys", "<hop>"], None),
        (
            ["tests.cli.play.acting:Acting", "--arg", "spec=3", "--keys", "d"],
            None,
        ),
    ],
    ids=["no terminal", "batch", "batch of one", "key", "no spec"],
)
def test_an_unplayable_environment_is_one_line(arguments, text, capsys):
    status = main(["play", *arguments])
    told = capsys.readouterr().err
    assert (2, 1) == (status, len(told.splitlines()))
    if text is not None:
        assert f"envkit play: {text}\n" == told


def make_fragile():
    return Fragile()


class Fragile(CountingEnv):
    """Breaks with the second step."""

    def _step(self, action):
        if self._current_step == 1:
            raise RuntimeError("It broke.")
        return super()._step(action)


@pytest.mark.slow
def test_play_runs_in_a_terminal(tmp_path):
    path = tmp_path / "played"
    with in_terminal("play", "Catch", "--terminal", "--record", path) as terminal:
        assert "wait: no key" in terminal.wait_for("any key: play")
        terminal.type(" ")
        assert "▀" in terminal.wait_for("step 0")
        terminal.type("\x1b[C")
        terminal.wait_for("step 1")
        terminal.type("a")
        terminal.wait_for("step 2")
        terminal.type("\x1b")

        assert (0, f"recorded in {path}") == terminal.end()
        assert terminal.is_as_before
    replayed = Replay(path)
    replayed.reset()
    first = replayed.recorded_action()
    replayed.step(0)
    assert (2, 0) == (int(first), int(replayed.recorded_action()))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)]
)
def test_the_terminal_is_restored_after_a_signal(number, status, interruptible):
    with in_terminal("play", "Catch", "--terminal", "--hz", "50") as terminal:
        terminal.wait_for("any key: play")
        terminal.type(".")
        terminal.wait_for("step 2")
        terminal.process.send_signal(number)
        assert status == terminal.end()[0]
        assert terminal.is_as_before


@pytest.mark.slow
def test_the_terminal_is_restored_after_an_error():
    with in_terminal("play", f"{HERE}:make_fragile", "--terminal") as terminal:
        terminal.wait_for("any key: play")
        terminal.type(" d")
        terminal.wait_for("step 1")
        terminal.type("d")
        assert (2, "envkit play: RuntimeError: It broke. (--debug shows where)") == (
            terminal.end()
        )
        assert terminal.is_as_before


@pytest.mark.slow
def test_play_runs_in_a_window(tmp_path):
    pytest.importorskip("pygame", reason="pygame is not installed")
    path = tmp_path / "played"
    options = ["--window", "--keys", "d<left><left+right>.q", "--record", path]
    done = subprocess.run(
        [sys.executable, "-m", "envkit", "play", "Catch", *options],
        capture_output=True,
        text=True,
        env={**os.environ, "SDL_VIDEODRIVER": "dummy", "SDL_AUDIODRIVER": "dummy"},
    )

    assert 0 == done.returncode, done.stderr
    assert "0 whole episodes, 5 steps\n" in done.stdout
    replayed = Replay(path)
    replayed.reset()
    actions = []
    for _ in range(5):
        actions.append(int(replayed.recorded_action()))
        replayed.step(0)
    # Of two keys that are down the newer one counts.
    assert [2, 0, 0, 2, 1] == actions


IN_TIME = """
from envkit import make
from envkit.play.game import Game
from envkit.play.key_map import key_map
from envkit.play.playing import View, in_window

env = make("Catch", seed=1)
game = Game(env, key_map(env))
view = View(lambda _: env.render(), "")
in_window(game, view, 200.0, title="", pressed=[["right"]])
print(game.status())
"""


@pytest.mark.slow
def test_time_passes_in_a_window():
    pytest.importorskip("pygame", reason="pygame is not installed")
    done = subprocess.run(
        [sys.executable, "-c", IN_TIME],
        capture_output=True,
        text=True,
        env={**os.environ, "SDL_VIDEODRIVER": "dummy", "SDL_AUDIODRIVER": "dummy"},
    )
    assert "episode 1   step 1   reward 0   return 0\n" == done.stdout, done.stderr


def test_the_keys_of_a_game_of_ple_are_its_own(ple_package, pygame, capsys):
    assert 0 == main(["play", "ple:Catcher", "--keys", "d"])
    told = capsys.readouterr().out.splitlines()
    assert ("  a, ←, 0   0 a", "  d, →, 1   1 d") == tuple(told[:2])


def test_a_game_that_owns_the_display_is_played_in_the_terminal(
    ple_package, pygame, capsys
):
    assert 2 == main(["play", "ple:Catcher", "--window"])
    assert (
        "envkit play: Another environment uses pygame's display, and a process has "
        "only one. --terminal plays in the terminal.\n"
    ) == capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="others have a display always")
def test_a_window_needs_a_display():
    pytest.importorskip("pygame", reason="pygame is not installed")
    displays = {"DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER"}
    done = subprocess.run(
        [sys.executable, "-m", "envkit", "play", "Catch", "--window"],
        capture_output=True,
        text=True,
        env={name: os.environ[name] for name in os.environ if name not in displays},
        timeout=PATIENCE,
    )

    assert 2 == done.returncode
    assert (
        "envkit play: There is no display to open a window on. --terminal plays in the "
        "terminal."
    ) == done.stderr.splitlines()[-1]


def test_a_window_needs_pygame(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "pygame", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert 2 == main(["play", "Catch", "--window", "--keys", "d"])
    assert (
        "envkit play: A window to play in needs the package pygame, which is not "
        'installed. pip install "pygame-ce>=2.5"\n'
    ) == capsys.readouterr().err
