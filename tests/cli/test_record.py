"""`envkit record`: films and recordings, and that none is there by half."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from envkit import BoundedArraySpec, PyEnvironment, make
from envkit.cli.main import main
from envkit.desktop import DesktopClient, DesktopError
from envkit.envs.random_py_environment import RandomPyEnvironment
from envkit.play.tally import Tally
from envkit.recording import Recording, Replay
from envkit.testing import CountingEnv
from tests.waiting import PATIENCE, until

HERE = __name__


def record(*arguments):
    return main(["record", *map(str, arguments)])


def needs(name):
    """Skips a test for want of what writes and reads films."""
    for package in ["imageio", "imageio_ffmpeg"] if "." in name else []:
        pytest.importorskip(package, reason=f"{package} is not installed")


def shape_of(path, height, width):
    """Returns the shape of a film's pictures, if they have this size."""
    from tests.wrappers.films import gif, mp4

    return (mp4(path, height, width) if path.suffix == ".mp4" else gif(path)).shape


def left_in(folder):
    return sorted(path.name for path in folder.iterdir())


# Who acts.


def always_right(time_step):
    return np.full(np.shape(time_step.reward), 2)


def make_right(env):
    return lambda time_step: env.action_spec().maximum


class Right:
    """Made without anything."""

    def __call__(self, time_step):
        return 2


class RightOf:
    """Made with the environment."""

    def __init__(self, env):
        self._action = env.action_spec().maximum

    def __call__(self, time_step):
        return self._action


NUMBER = 3


@pytest.mark.parametrize("name", ["always_right", "make_right", "Right", "RightOf"])
def test_a_policy_is_named_as_a_function_or_a_class(name, tmp_path):
    path = tmp_path / "r"
    assert 0 == record("Catch", "-o", path, "--policy", f"{HERE}:{name}")
    (episode,) = Recording(path).episodes()
    assert [2] * 9 == [int(episode.action(step)) for step in range(1, 10)]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "walk",
            "The policy must be 'random' or 'module:attribute', such as "
            "my_package.agents:act, got 'walk'.",
        ),
        (
            "no_such:act",
            "The policy 'no_such:act' cannot be imported: No module named 'no_such'.",
        ),
        (
            f"{HERE}:nobody",
            f"The policy '{HERE}:nobody' cannot be imported: module {HERE!r} has no "
            "attribute 'nobody'.",
        ),
        (
            f"{HERE}:NUMBER",
            f"TypeError: The policy '{HERE}:NUMBER' must be a function of a time step "
            "that returns an action, got 3 of type int. (--debug shows where)",
        ),
    ],
    ids=["name", "module", "attribute", "number"],
)
def test_an_unknown_policy_is_one_line(name, text, tmp_path, capsys):
    assert 2 == record("Catch", "-o", tmp_path / "r", "--policy", name)
    assert f"envkit record: {text}\n" == capsys.readouterr().err
    assert [] == left_in(tmp_path)


def test_chance_depends_on_the_seed(tmp_path):
    for name in ("a", "b"):
        record("Catch", "-o", tmp_path / name, "--seed", 5, "--episodes", 2)
    first, second = (
        [
            episode.action(step).tolist()
            for episode in Recording(tmp_path / name).episodes()
            for step in range(1, len(episode))
        ]
        for name in ("a", "b")
    )

    assert first == second


def test_without_a_seed_one_is_drawn_and_shown(tmp_path, capsys):
    path = tmp_path / "r"
    assert 0 == record("TicTacToe", "-o", path, "--episodes", 5, "--json")
    told = json.loads(capsys.readouterr().out)
    assert told["seed"] == Recording(path).provenance["seed"]
    assert 0 == main(["replay", "--check", str(path)])


def test_a_drawn_seed_leaves_the_one_of_the_environment_alone(tmp_path):
    path = tmp_path / "r"
    assert 0 == record("Catch", "-o", path, "--arg", "seed=7", "--episodes", 3)
    assert 7 == Recording(path).provenance["seed"]
    assert 0 == main(["replay", "--check", str(path)])


class Seedless(CountingEnv):
    seed = PyEnvironment.seed  # which raises


@pytest.mark.parametrize("pool", [[], ["--num-envs", 2, "--arg", "backend=inline"]])
def test_an_unseedable_environment_is_recorded_without_a_seed(pool, tmp_path, capsys):
    assert 0 == record(f"{HERE}:Seedless", "-o", tmp_path / "r", "--json", *pool)
    assert json.loads(capsys.readouterr().out)["seed"] is None


class Painter(CountingEnv):
    def render(self, mode="rgb_array"):
        return "a picture"


def test_what_was_expected_and_got_are_one_sentence(tmp_path, capsys):
    assert 2 == record(f"{HERE}:Painter", "-o", tmp_path / "a", "--pictures")
    assert (
        'envkit record: Painter: render("rgb_array") did not return a picture. '
        "Expected uint8 array of shape (height, width, 3), got the string 'a picture'. "
        "Colours last, values from 0 to 255.\n"
    ) == capsys.readouterr().err


class Doors(CountingEnv):
    """Has two of five doors open, which the info lists; the others must not be tried.

    With `spread`, both players have doors of their own, and masks by name.
    """

    def __init__(self, spread: bool = False) -> None:
        super().__init__(steps_per_episode=20)
        self._spread = spread

    def action_spec(self):
        door = BoundedArraySpec((), np.int32, 1, 5)
        return {"a": door, "b": door} if self._spread else door

    def _open(self, shift=0):
        return [1 + (self._current_step + shift) % 5, 1 + (self._current_step + 2) % 5]

    def get_info(self):
        if not self._spread:
            return {"legal_actions": self._open()}
        legal = [self._open(shift) for shift in (0, 1)]
        masks = [np.isin(np.arange(1, 6), doors).astype(np.int8) for doors in legal]
        return {"action_mask": dict(zip("ab", masks, strict=True))}

    def _step(self, action):
        both = [action["a"], action["b"]] if self._spread else [action]
        for shift, choice in enumerate(both):
            if int(choice) not in self._open(shift):
                raise ValueError(f"Door {choice} is shut.")
        return super()._step(action)


@pytest.mark.parametrize("batch", [None, 3], ids=["single", "pool"])
@pytest.mark.parametrize("spread", [0, 1], ids=["list", "masks"])
def test_the_random_policy_keeps_to_what_the_info_allows(batch, spread, tmp_path):
    pool = ["--num-envs", batch, "--arg", "backend=inline"] if batch else []
    game = [f"{HERE}:Doors", "--arg", f"spread={spread}"]
    assert 0 == record(*game, "-o", tmp_path / "r", "--steps", 50, *pool)


@pytest.mark.parametrize("batch", [None, 3], ids=["single", "batch"])
def test_the_random_policy_keeps_to_what_the_observation_allows(batch, tmp_path):
    path = tmp_path / "r"
    rows = ["--arg", f"batch_size={batch}"] if batch else []
    assert 0 == record("TicTacToe", "-o", path, "--episodes", 20, *rows)
    rewards = {
        float(episode.time_step(len(episode) - 1).reward)
        for episode in Recording(path).episodes()
        if episode.ended == "last"
    }
    assert rewards <= {-1.0, 0.0, 1.0}


def test_the_random_policy_reads_masks_of_other_libraries(tmp_path):
    pytest.importorskip("pettingzoo", reason="pettingzoo is not installed")
    game = ["pettingzoo:classic/connect_four_v3", "-o", tmp_path / "r"]
    # An illegal move would end a game at once.
    assert 0 == record(*game, "--episodes", 5)
    assert all(len(episode) > 7 for episode in Recording(tmp_path / "r").episodes())


# What comes out.


class Rolling(CountingEnv):
    """Earns random rewards, and knows its seed alone."""

    _rng = np.random.default_rng()

    def seed(self, seed):
        self._rng = np.random.default_rng(seed)

    def _step(self, action):
        reward = np.float32(self._rng.random())
        return super()._step(action)._replace(reward=reward)


@pytest.mark.parametrize(
    ("target", "name"),
    [("Catch-v1", "Catch-v1"), (f"{HERE}:Rolling", "Rolling")],
)
def test_a_recording_gets_a_default_path_and_seed(
    target, name, tmp_path, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        assert 0 == record(target)
        assert ", seed " in capsys.readouterr().out
    first, second = sorted((tmp_path / "recordings").iterdir())
    assert re.fullmatch(rf"{name}-\d{{4}}(-\d\d){{2}}-\d{{6}}(-2)?", second.name)
    for path in (first, second):
        assert 0 == main(["replay", "--check", "--trust", str(path)])


def test_a_directory_of_episodes_can_be_checked(tmp_path, capsys):
    path = tmp_path / "runs" / "catch"
    status = record("Catch-v1", "-o", path, "--episodes", 3, "--seed", 1)
    assert 0 == status
    assert capsys.readouterr().out.startswith(
        f"{path}: 3 whole episodes, 27 steps, mean"
    )
    assert 3 == len(Recording(path).of_kind("episode"))
    assert 0 == main(["replay", "--check", str(path)])
    assert ["catch"] == left_in(tmp_path / "runs")


@pytest.mark.parametrize("name", ["out.gif", "out.mp4"])
def test_a_film_has_a_picture_of_each_time_step(name, tmp_path):
    needs(name)
    path = tmp_path / name
    assert 0 == record("Catch", "-o", path)
    assert (10, 160, 80, 3) == shape_of(path, 160, 80)
    assert [name] == left_in(tmp_path)


@pytest.mark.parametrize(("hz", "shown"), [([], 30), (["--hz=10"], 100)])
def test_a_film_has_the_requested_pace(hz, shown, tmp_path):
    iio = pytest.importorskip("imageio.v3", reason="imageio is not installed")
    assert 0 == record("Catch", "-o", tmp_path / "out.gif", *hz)
    # GIFs count hundredths of a second.
    assert shown == iio.immeta(tmp_path / "out.gif")["duration"]


def test_a_batch_is_a_grid(tmp_path, capsys):
    needs("out.gif")
    path = tmp_path / "out.gif"
    status = record(
        "Catch", "--arg", "batch_size=3", "-o", path, "--steps", 4, "--json"
    )
    told = json.loads(capsys.readouterr().out)

    assert 0 == status
    # Two beside and above one another, with bars of two points between.
    assert (5, 322, 162, 3) == shape_of(path, 322, 162)
    assert {
        "output": str(path),
        "kind": "gif",
        "target": "Catch",
        "policy": "random",
        "seed": told["seed"],
        "episodes": 0,
        "steps": 12,
        "pictures": 5,
        "returns": [[], [], []],
        "mean_return": None,
    } == told


@pytest.mark.slow
def test_a_batch_of_anything_is_made_in_worker_processes(tmp_path, capsys):
    needs("out.gif")
    path = tmp_path / "out.gif"
    target = "envkit.testing:CountingEnv"
    status = record(target, "-o", path, "--num-envs", 2, "--episodes", 2, "--json")
    told = json.loads(capsys.readouterr().out)
    assert (0, 4, [[1.0, 1.0]] * 2) == (status, told["episodes"], told["returns"])
    assert (8, 18, 3) == shape_of(path, 8, 18)[1:]


@pytest.mark.parametrize("name", ["out.gif", "runs"])
def test_a_pool_that_is_asked_for_by_its_argument_is_the_same(name, tmp_path, capsys):
    needs(name)
    pool = ["--arg", "num_envs=3", "--arg", "backend=inline"]
    assert 0 == record("Catch", "-o", tmp_path / name, *pool)
    assert capsys.readouterr().out.startswith(
        f"{tmp_path / name}: 3 whole episodes, 27 steps, mean"
    )


def test_the_number_of_environments_may_be_given_only_once(tmp_path, capsys):
    status = record(
        "Catch", "-o", tmp_path / "runs", "--arg", "num_envs=3", "--num-envs", 3
    )
    assert 2 == status
    assert (
        "envkit record: --num-envs and --arg num_envs are the same: pass only one.\n"
    ) == capsys.readouterr().err


@pytest.mark.slow
def test_a_pool_with_options_renders(tmp_path):
    pytest.importorskip("gymnasium", reason="gymnasium is not installed")
    needs("out.gif")
    path = tmp_path / "out.gif"
    pool = ["--arg", "num_envs=2", "--arg", "num_workers=1"]
    assert 0 == record("gymnasium:CartPole-v1", "-o", path, "--steps", 3, *pool)
    assert (4, 400, 1202, 3) == shape_of(path, 400, 1202)


def test_gymnasium_environments_render(tmp_path):
    needs("out.gif")
    pytest.importorskip("gymnasium", reason="gymnasium is not installed")
    pytest.importorskip("pygame", reason="pygame is not installed")
    path = tmp_path / "out.gif"
    assert 0 == record("gymnasium:CartPole-v1", "-o", path, "--steps", 3)
    assert (4, 400, 600, 3) == shape_of(path, 400, 600)


def test_a_film_needs_its_package_and_says_so_at_once(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    assert 2 == record("Catch", "-o", tmp_path / "out.mp4")
    assert (
        "envkit record: A film in .mp4 needs the package imageio-ffmpeg, which is not "
        'installed. pip install "imageio-ffmpeg>=0.5.1"\n'
    ) == capsys.readouterr().err


# What is there already.


@pytest.mark.parametrize("name", ["out.gif", "runs"])
def test_an_existing_output_is_only_replaced_with_overwrite(name, tmp_path, capsys):
    needs(name)
    path = tmp_path / name
    record("Catch", "-o", path)
    capsys.readouterr()

    assert 2 == record("Catch", "-o", path)
    assert (
        f"envkit record: {str(path)!r} exists already. --overwrite replaces it, once "
        "the new one is complete.\n"
    ) == capsys.readouterr().err
    assert 0 == record("Catch", "-o", path, "--overwrite", "--episodes", 2)
    assert [name] == left_in(tmp_path)
    assert capsys.readouterr().out.startswith(f"{path}: 2 whole episodes, 18 steps")


@pytest.mark.parametrize("name", ["home", "home.gif"])
def test_a_directory_of_something_else_is_never_removed(name, tmp_path, capsys):
    path = tmp_path / name
    path.mkdir()
    (path / "letter.txt").write_text("Dear")
    assert 2 == record("Catch", "-o", path, "--overwrite")
    assert (
        f"envkit record: {str(path)!r} is a directory that is not a recording of "
        "envkit, so it is not replaced.\n"
    ) == capsys.readouterr().err
    assert ["letter.txt"] == left_in(path)


def test_a_film_does_not_take_the_place_of_an_empty_folder(tmp_path, capsys):
    path = tmp_path / "out.gif"
    path.mkdir()
    assert 2 == record("Catch", "-o", path)
    assert (
        f"envkit record: {str(path)!r} is a directory that is not a recording of "
        "envkit, so it is not replaced.\n"
    ) == capsys.readouterr().err


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes")
def test_a_special_file_is_never_replaced(tmp_path, capsys):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    assert 2 == record("Catch", "-o", path, "--overwrite")
    assert (
        f"envkit record: {str(path)!r} is a device, a pipe or a socket, so it is not "
        "replaced.\n"
    ) == capsys.readouterr().err
    assert path.is_fifo()


@pytest.mark.parametrize(
    ("name", "more", "text"),
    [
        (
            "out.avi",
            [],
            "{path!r} ends in .avi; a film is .mp4 or .gif, and anything else is a "
            "directory of episodes.",
        ),
        (
            "out.gif",
            ["--hz", 60],
            "A GIF shows at most 50 pictures per second, not 60. An .mp4 shows more.",
        ),
    ],
)
def test_an_impossible_output_is_refused_at_once(name, more, text, tmp_path, capsys):
    path = tmp_path / name
    assert 2 == record("Catch", "-o", path, *more)
    expected = text.format(path=str(path))
    assert f"envkit record: {expected}\n" == capsys.readouterr().err


# What goes wrong.


class Blind(CountingEnv):
    """Shows nothing."""

    def render(self, mode="rgb_array"):
        raise NotImplementedError("Blind cannot render.")


class Fragile(CountingEnv):
    """Breaks with the third step."""

    def _step(self, action):
        if self._current_step == 2:
            raise RuntimeError("It broke.")
        return super()._step(action)


def test_an_environment_that_does_not_render_is_reported_with_the_remedy(
    tmp_path, capsys
):
    needs("out.mp4")
    assert 2 == record(f"{HERE}:Blind", "-o", tmp_path / "out.mp4")
    assert (
        f"envkit record: {HERE}:Blind cannot be filmed: Blind cannot render. A "
        "directory of episodes needs no pictures: give a PATH without .mp4 or .gif.\n"
    ) == capsys.readouterr().err
    assert [] == left_in(tmp_path)


class Growing(CountingEnv):
    """Has a larger picture in each step."""

    def render(self, mode="rgb_array"):
        return np.zeros((8 + self._current_step, 8, 3), np.uint8)


def test_pictures_of_another_size_are_reported(tmp_path, capsys):
    needs("out.gif")
    assert 2 == record(f"{HERE}:Growing", "-o", tmp_path / "out.gif")
    assert (
        f"envkit record: {HERE}:Growing cannot be filmed: its picture after 1 has "
        "shape (9, 8, 3), and those before have (8, 8, 3); a film has one size.\n"
    ) == capsys.readouterr().err
    assert [] == left_in(tmp_path)


class Shifting(CountingEnv):
    """Has discounts of another shape after its first step."""

    def _step(self, action):
        time_step = super()._step(action)
        shape = () if self._current_step == 1 else (self._current_step,)
        return time_step._replace(discount=np.ones(shape, np.float32))


def test_an_unwritable_output_is_reported_with_its_path(tmp_path, capsys):
    path = tmp_path / "runs"
    assert 2 == record(f"{HERE}:Shifting", "-o", path)
    assert (
        f"envkit record: {str(path)!r} cannot be written: discount has shape (2,) "
        "after () in the same episode, and files hold arrays of one shape, that of the "
        "spec\n"
    ) == capsys.readouterr().err
    assert [] == left_in(tmp_path)


@pytest.mark.parametrize("name", ["out.mp4", "out.gif", "runs"])
def test_an_error_leaves_nothing_behind(name, tmp_path, capsys):
    needs(name)
    assert 2 == record(f"{HERE}:Fragile", "-o", tmp_path / name)
    assert "envkit record: RuntimeError: It broke. (--debug shows where)\n" == (
        capsys.readouterr().err
    )
    assert [] == left_in(tmp_path)


class Telling(CountingEnv):
    """Never ends, and says when it is under way."""

    def __init__(self):
        super().__init__(steps_per_episode=10**9)

    def _step(self, action):
        if self._current_step == 5:
            print("under way", file=sys.stderr, flush=True)
        return super()._step(action)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "number", "status"),
    [
        ("out.mp4", signal.SIGINT, 130),
        ("runs", signal.SIGTERM, 143),
    ],
)
def test_a_signal_leaves_nothing_behind(name, number, status, tmp_path, interruptible):
    needs(name)
    target = f"{HERE}:Telling"
    process = subprocess.Popen(
        [sys.executable, "-m", "envkit", "record", target, "-o", tmp_path / name],
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        assert "under way\n" == process.stderr.readline()
        process.send_signal(number)

        assert status == process.wait(PATIENCE)
    assert [] == left_in(tmp_path)


@settings(max_examples=15)
@given(
    episodes=st.integers(1, 3),
    rows=st.sampled_from([None, 1, 4]),
    seed=st.integers(0, 99),
)
def test_every_row_has_as_many_episodes_as_asked_for(episodes, rows, seed):
    spec = BoundedArraySpec((), np.int64, 0, 1)
    env = RandomPyEnvironment(spec, spec, batch_size=rows, seed=seed)
    tally = Tally(rows or 1, episodes=episodes)
    time_step = env.reset()
    tally.see(time_step)
    while not tally.complete:
        tally.see(env.step(np.zeros(rows or (), np.int64)))

    assert [episodes] * (rows or 1) == [len(row) for row in tally.returns]


def test_only_steps_with_an_action_count():
    env, tally = make("Catch", rows=3), Tally(1, steps=5)
    while not tally.complete:
        tally.see(env.step(0))
    assert (5, 2) == (tally.steps, tally.episodes)


# People who act.


def test_a_person_acts_in_a_vnc_viewer_and_replay_plays_what_was_done(tmp_path):
    command = [sys.executable, "-m", "envkit", "record", "Catch", "--vnc", "--port=0"]
    command += ["--hz=0"]
    command += ["-o", str(tmp_path / "shown"), "--seed=3", "--episodes=1"]
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            line = process.stderr.readline()
            found = re.fullmatch(r"play in a VNC viewer: vnc://(.*):(\d+)\n", line)
            with DesktopClient(found[1], int(found[2])) as viewer:
                for key in ["Left", "Right", "Left"] * 3:
                    viewer.press(key)
                assert until(lambda: process.poll() is not None)
            said = process.stdout.read()
        finally:
            process.kill()

    assert "1 whole episode, 9 steps, mean return" in said
    episode = next(iter(Recording(tmp_path / "shown").episodes()))
    assert [0, 2, 0] * 3 == [int(episode.action(step)) for step in range(1, 10)]
    played = Replay(tmp_path / "shown")
    steps = [played.reset()]
    while not steps[-1].is_last():
        steps.append(played.step(np.array(1)))
    assert 10 == len(steps)


@pytest.mark.parametrize("more", [[], ["--no-password"]])
def test_a_viewer_needs_the_password_that_is_printed_unless_told(more, tmp_path):
    command = [sys.executable, "-m", "envkit", "record", "Catch", "--vnc", "--port=0"]
    command += ["--hz=0"]
    with subprocess.Popen(
        [*command, "-o", str(tmp_path / "shown"), *more],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            lines = [process.stderr.readline() for _ in range(3)]
            if more:
                assert (
                    "envkit record: --no-password lets every account of this machine "
                    "play.\n"
                ) == lines.pop(0)
            port = int(lines[0].rpartition(":")[2])
            if more:
                DesktopClient("127.0.0.1", port).close()
                return
            password = re.fullmatch(
                r"envkit record: the password is (.{8})\n", lines[2]
            )
            page = rf"play in a browser: http://127\.0\.0\.1:\d+/#{password[1]}\n"
            assert re.fullmatch(page, lines[1])
            with pytest.raises(DesktopError, match="refuses the password"):
                DesktopClient("127.0.0.1", port, password="wrong")
            DesktopClient("127.0.0.1", port, password=password[1]).close()
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("more", "text"),
    [
        (["--no-password"], "--no-password has no effect without --vnc."),
        (["--port", "0"], "--port has no effect without --vnc."),
        (["--host", "::1"], "--host has no effect without --vnc."),
        (["--cert", "cert.pem"], "--cert has no effect without --vnc."),
        (
            ["--vnc", "--host=0.0.0.0"],
            "--host=0.0.0.0 lets other machines connect, and without --cert and --key "
            "the password travels in the clear: add them, or leave --host out and "
            "connect through a tunnel.",
        ),
        (["--web-port", "0"], "--web-port has no effect without --vnc."),
        (
            ["--password-file", "x"],
            "--password-file has no effect without --vnc.",
        ),
        (["--hz", "5"], "--hz=5 has no effect without a film or --vnc: leave it out."),
        (
            ["--vnc", "--no-password", "--password-file=x"],
            "--password-file and --no-password contradict each other: leave one out.",
        ),
        (
            ["--vnc", "--policy", "a:b"],
            "--vnc and --policy contradict each other: leave one out.",
        ),
        (
            ["--vnc", "--port=0", "--num-envs", "2"],
            "A person plays a single environment, and this is a batch of 2.",
        ),
    ],
)
def test_options_of_people_and_policies_do_not_mix(more, text, tmp_path, capsys):
    assert 2 == record("Catch", "-o", tmp_path / "shown", *more)
    assert f"envkit record: {text}\n" == capsys.readouterr().err


# Pictures in a directory.


@pytest.mark.parametrize(
    "target", [["gymnasium:CartPole-v1"], ["CartPole", "--num-envs", "2"]]
)
def test_a_directory_has_pictures_if_asked_for(target, tmp_path, capsys):
    path = tmp_path / "r"
    options = ["--pictures", "--seed", "3", "--steps", "4", "--json"]
    assert main(["record", *target, "-o", str(path), *options]) == 0
    episodes = list(Recording(path).episodes())
    shapes = {
        episode.picture(step).shape
        for episode in episodes
        for step in range(len(episode))
    }
    assert len(shapes) == 1
    assert json.loads(capsys.readouterr().out)["pictures"] == sum(map(len, episodes))


def test_an_environment_that_cannot_draw_is_named(tmp_path, capsys):
    path = tmp_path / "r"
    assert 2 == main(
        ["record", f"{HERE}:Blind", "--pictures", "--steps", "2", "-o", str(path)]
    )
    assert capsys.readouterr().err == (
        f"envkit record: {HERE}:Blind cannot be recorded with pictures: Blind cannot "
        "render. Leave --pictures out.\n"
    )
    assert not path.exists()


def test_a_film_has_no_pictures_beside_it(tmp_path, capsys):
    film = tmp_path / "film.mp4"
    assert 2 == main(["record", "Catch", "--pictures", "-o", str(film)])
    assert "--pictures has no effect in a film" in capsys.readouterr().err
