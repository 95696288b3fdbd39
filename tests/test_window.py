"""The window of a process: what SDL is told before it, and what environments show."""

from __future__ import annotations

import copy
import gc
import os
import pickle
import signal
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from envkit import BatchedPyEnvironment, ParallelPyEnvironment, make
from envkit._shared.quiet_sdl import prepare_sdl
from envkit.adapters import PyToGymnasium, PyToGymnasiumVector
from envkit.envs import Bandit, CartPole, Catch, GridWorld, TicTacToe
from envkit.errors import CallOrderError, MissingDependencyError
from envkit.play import window
from envkit.wrappers import TimeLimit
from tests.waiting import PATIENCE

WITHOUT_DISPLAY = (
    "DISPLAY",
    "WAYLAND_DISPLAY",
    "SDL_VIDEODRIVER",
    "SDL_AUDIODRIVER",
    "ENVKIT_HIDES_WINDOWS",
    "XDG_RUNTIME_DIR",
)


def run_alone(code: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs code in a new process that has no display, and none of SDL's settings."""
    kept = {k: v for k, v in os.environ.items() if k not in WITHOUT_DISPLAY}
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env={
            **kept,
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            **variables,
        },
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


PLAY = """
    import os, signal, sys
    from envkit.adapters.ple.suite import PLEWrapper
    from tests.adapters.ple_games import PLE, Catcher
    assert "pygame" not in sys.modules
    env = PLEWrapper(lambda: PLE(Catcher()))
    env.reset()
    print(os.environ["SDL_VIDEODRIVER"], os.environ["SDL_AUDIODRIVER"])
    sys.stdout.flush()
"""


def test_games_run_on_a_machine_without_a_display(pygame):
    done = run_alone(PLAY)
    assert ("dummy dummy\n", "", 0) == (done.stdout, done.stderr, done.returncode)


def test_the_users_sdl_settings_are_kept(pygame):
    done = run_alone(
        PLAY,
        SDL_VIDEODRIVER="offscreen",
        SDL_AUDIODRIVER="disk",
        SDL_DISKAUDIOFILE=os.devnull,
    )
    assert "offscreen disk\n" == done.stdout


def test_a_process_with_a_game_ends_on_sigterm(pygame):
    """By itself SDL takes SIGTERM for a click on a window's close button."""
    done = run_alone(PLAY + "    os.kill(os.getpid(), signal.SIGTERM)\n")
    assert -signal.SIGTERM == done.returncode


@pytest.mark.parametrize("variable", ["DISPLAY", "WAYLAND_DISPLAY"])
@pytest.mark.parametrize(
    ("shows_window", "driver"), [(True, None), (False, "dummy"), (None, None)]
)
def test_a_game_can_be_shown_on_a_machine_with_a_display(
    variable, shows_window, driver, monkeypatch
):
    """A function that makes a game may show it, for all that is known."""
    environment = {variable: ":0"}
    monkeypatch.setattr(window.os, "environ", environment)
    monkeypatch.setattr(window.sys, "platform", "linux")
    prepare_sdl(shows_window)
    assert driver == environment.get("SDL_VIDEODRIVER")
    assert "1" == environment["PYGAME_HIDE_SUPPORT_PROMPT"]


@pytest.mark.parametrize(
    ("platform", "driver"), [("linux", "dummy"), ("darwin", None), ("win32", None)]
)
def test_without_these_variables_only_linux_has_no_display(
    platform, driver, monkeypatch
):
    environment: dict[str, str] = {}
    monkeypatch.setattr(window.os, "environ", environment)
    monkeypatch.setattr(window.sys, "platform", platform)
    prepare_sdl(None)
    assert driver == environment.get("SDL_VIDEODRIVER")


@pytest.mark.parametrize(
    ("found", "variables", "driver"),
    [
        ([], {}, "dummy"),
        (["/dev/snd/pcmC0D0p"], {}, None),
        ([], {"PULSE_SERVER": "tcp:10.0.0.2"}, None),
        ([], {"SDL_AUDIODRIVER": "alsa"}, "alsa"),
    ],
    ids=["no card", "a card", "a server", "chosen"],
)
def test_games_are_silent_where_nothing_plays_sound(
    found, variables, driver, monkeypatch
):
    environment = {"DISPLAY": ":0", **variables}
    monkeypatch.setattr(os, "environ", environment)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr("glob.glob", lambda pattern: found)
    prepare_sdl(None)
    assert driver == environment.get("SDL_AUDIODRIVER")


# What environments show. The driver "dummy" has a window that nobody sees.

with_pygame = pytest.mark.usefixtures("pygame")
KINDS = [Bandit, CartPole, Catch, GridWorld, TicTacToe]


@pytest.fixture(autouse=True)
def without_a_display(monkeypatch):
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")


def begun(env):
    env.reset()
    return env


def points():
    """Returns the picture in the window, with the colours last."""
    import pygame

    return pygame.surfarray.array3d(window.surface()).swapaxes(0, 1)


@with_pygame
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("batch_size", [None, 3, 70])
def test_an_environment_shows_its_picture_until_it_is_closed(kind, batch_size):
    env = begun(kind(batch_size=batch_size))
    assert env.render("human") is None
    width, height = window.surface().get_size()
    assert 0 < max(width, height) <= 960
    assert points().std() > 0

    env.close()
    assert window.surface() is None


@with_pygame
def test_the_window_shows_the_rendered_picture():
    with begun(Catch(rows=3, columns=2)) as env:
        env.render("human")
        picture = env.render()
        times = window.surface().get_width() // picture.shape[1]
        first = points()
        assert np.array_equal(picture.repeat(times, 0).repeat(times, 1), first)

        env.step(1)
        env.render("human")
        assert not np.array_equal(first, points())


@with_pygame
def test_a_closed_environment_can_be_shown_again():
    env = begun(Catch())
    env.render("human")
    env.close()
    env.close()
    env.step(0)
    env.render("human")
    assert window.surface() is not None

    env.close()


@with_pygame
def test_several_environments_share_the_window():
    catch, grid = begun(Catch()), begun(GridWorld())
    catch.render("human")
    alone = window.surface().get_size()
    grid.render("human")
    both = window.surface().get_size()
    grid.close()
    assert alone == window.surface().get_size() != both

    catch.close()
    assert window.surface() is None


@with_pygame
def test_a_garbage_collected_environment_leaves_the_window():
    kept, forgotten = begun(Catch()), begun(Catch())
    kept.render("human")
    alone = window.surface().get_size()
    forgotten.render("human")
    del forgotten
    gc.collect()
    kept.render("human")
    assert alone == window.surface().get_size()

    kept.close()


@with_pygame
def test_a_window_is_no_part_of_an_environment():
    env = begun(CartPole(seed=1))
    env.render("human")
    copies = [copy.deepcopy(env), pickle.loads(pickle.dumps(env))]
    state = env.get_state()
    expected = env.step(0).observation
    for other in copies:
        assert np.array_equal(expected, other.step(0).observation)
        other.close()
    assert window.surface() is not None

    env.set_state(state)
    env.render("human")
    env.close()


@with_pygame
def test_wrappers_and_views_show_the_picture():
    env = TimeLimit(Catch(), 5)
    env.reset()
    gym = PyToGymnasium(begun(Catch()), render_mode="human")
    gym.reset()
    assert (None, None) == (env.render("human"), gym.render())
    assert "human" in gym.metadata["render_modes"]

    env.close()
    gym.close()
    assert window.surface() is None


@with_pygame
@pytest.mark.parametrize(
    "make_batch",
    [
        lambda: Catch(batch_size=2),
        lambda: BatchedPyEnvironment([Catch(), Catch()]),
        lambda: ParallelPyEnvironment(["Catch"] * 2, backend="inline"),
    ],
    ids=["one object", "batch", "pool"],
)
def test_a_batch_shows_all_rows_and_has_a_text_for_each(make_batch):
    with make_batch() as batch:
        envs = PyToGymnasiumVector(batch, render_mode="human")
        envs.reset()
        assert (None, None) == envs.render()
        width, height = window.surface().get_size()
        assert width > height
        texts = batch.render("ansi")
        assert [10, 10] == [len(text.splitlines()) for text in texts]
    assert window.surface() is None


@with_pygame
@pytest.mark.parametrize("backend", ["process", "thread", "inline"])
def test_a_pool_has_its_workers_show_windows(backend):
    makers = ["Catch", lambda: Catch(batch_size=2), "Catch"]
    with ParallelPyEnvironment(makers, backend=backend, num_workers=2) as env:
        env.reset()
        assert [None] * 4 == env.render("human")
        assert [str] * 4 == [type(text) for text in env.render("ansi")]
        assert env.envs[0].render("human") is None
        assert env.envs[1].render("ansi") == env.render("ansi")[1:3]
    assert window.surface() is None


@with_pygame
def test_a_display_in_use_is_left_alone(pygame, message_of):
    pygame.display.set_mode((20, 10))
    env = begun(Catch())
    assert (
        "Another environment uses pygame's display, and a process has only one. "
        "render('ansi') returns text."
    ) == message_of(OSError, lambda: env.render("human"))

    env.close()
    assert (20, 10) == window.surface().get_size()


@with_pygame
def test_a_window_that_something_else_has_closed_opens_again(pygame):
    env = begun(Catch())
    env.render("human")
    pygame.quit()
    env.render("human")
    assert window.surface() is not None

    pygame.quit()
    env.close()


@with_pygame
def test_a_game_of_ple_does_not_take_the_display(ple_package, message_of):
    with begun(Catch()) as env:
        env.render("human")
        assert (
            "An environment shows its picture in a window, and pygame has one display "
            "for all of a process: a game of PLE would draw over it. Close that "
            "environment first, or run the game in a worker process: "
            "ParallelPyEnvironment([make_game])."
        ) == message_of(RuntimeError, lambda: make("ple:Catcher"))


def test_nothing_can_be_shown_before_the_first_episode():
    with pytest.raises(CallOrderError):
        Catch().render("human")


def test_a_window_needs_pygame(monkeypatch, message_of):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    env = begun(CartPole())
    assert (
        "CartPole.render('human') needs the package pygame, which is not installed. "
        'pip install "pygame-ce>=2.5"'
    ) == message_of(MissingDependencyError, lambda: env.render("human"))


@pytest.mark.skipif(sys.platform != "linux", reason="others have a display always")
def test_a_window_needs_a_display(pygame, monkeypatch, message_of):
    for variable in WITHOUT_DISPLAY:
        monkeypatch.delenv(variable, raising=False)
    env = begun(Catch())
    assert (
        "There is no display to open a window on. render('ansi') returns text."
    ) == message_of(OSError, lambda: env.render("human"))
