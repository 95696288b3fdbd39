"""What SDL is told before it starts: in processes of their own, as it asks once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap

import pytest

from envkit.adapters.ple_parts import sdl_settings
from envkit.adapters.ple_parts.sdl_settings import prepare_sdl

WITHOUT_DISPLAY = ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER", "SDL_AUDIODRIVER")


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
        timeout=60,
        check=False,
    )


PLAY = """
    import os, signal, sys
    from envkit.adapters.ple_wrapper import PLEWrapper
    from tests.adapters.ple_games import PLE, Catcher
    assert "pygame" not in sys.modules
    env = PLEWrapper(lambda: PLE(Catcher()))
    env.reset()
    print(os.environ["SDL_VIDEODRIVER"], os.environ["SDL_AUDIODRIVER"])
    sys.stdout.flush()
"""


def test_a_machine_without_a_display_plays_all_the_same(pygame):
    done = run_alone(PLAY)

    assert ("dummy dummy\n", "", 0) == (done.stdout, done.stderr, done.returncode)


def test_what_the_user_has_set_for_sdl_stays(pygame):
    done = run_alone(PLAY, SDL_VIDEODRIVER="offscreen", SDL_AUDIODRIVER="disk")

    assert "offscreen disk\n" == done.stdout


def test_a_process_with_a_game_ends_when_it_is_told_to(pygame):
    """By itself SDL takes SIGTERM for a click on a window's close button."""
    done = run_alone(PLAY + "    os.kill(os.getpid(), signal.SIGTERM)\n")

    assert -signal.SIGTERM == done.returncode


@pytest.mark.parametrize("variable", ["DISPLAY", "WAYLAND_DISPLAY"])
@pytest.mark.parametrize(
    ("shows_window", "driver"), [(True, None), (False, "dummy"), (None, None)]
)
def test_on_a_machine_with_a_display_a_game_may_be_shown(
    variable, shows_window, driver, monkeypatch
):
    """A function that makes a game may show it, for all that is known."""
    environment = {variable: ":0"}
    monkeypatch.setattr(sdl_settings.os, "environ", environment)
    monkeypatch.setattr(sdl_settings.sys, "platform", "linux")

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
    monkeypatch.setattr(sdl_settings.os, "environ", environment)
    monkeypatch.setattr(sdl_settings.sys, "platform", platform)

    prepare_sdl(None)

    assert driver == environment.get("SDL_VIDEODRIVER")
