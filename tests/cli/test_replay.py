"""`envkit replay`: recordings shown, and checked bit for bit by another process."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

import envkit
from envkit import BatchedPyEnvironment, make, register, registry
from envkit.cli.main import main
from envkit.play.viewing import Viewing, pictures_of
from envkit.realtime import RealTimeEnvironment
from envkit.recording import Record, Recording
from envkit.testing import CountingEnv
from envkit.wrappers import FrameStack, TimeLimit, wrap
from tests.cli.pseudo_terminal import in_terminal

HERE = __name__


def in_a_process(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "envkit", "replay", *map(str, arguments)],
        capture_output=True,
        text=True,
    )


@pytest.fixture
def replay(capsys):
    """Runs the command; returns its status and what it wrote to where."""

    def run(*arguments):
        status = main(["replay", *map(str, arguments)])
        return status, *capsys.readouterr()

    return run


def record(path, env, steps=60, when="always", seed=None):
    """Records a game with all that a batch can be asked for."""
    rng = np.random.default_rng(7)
    with Record(env, path, when) as recorded:
        if seed is not None:
            recorded.seed(seed)
        rows = env.batch_size
        for step in range(steps):
            action = rng.integers(0, 2, rows)
            if rows and step % 9 == 5 and env.resets_rows:
                recorded.reset(np.arange(rows) == 1)
            elif rows and step % 7 == 3 and env.holds_rows:
                recorded.step_rows(
                    action, np.arange(rows) % 2 == 0, np.arange(rows) == 3
                )
            else:
                recorded.step(action)
    return path


ENVIRONMENTS = {
    "single": lambda: make("CartPole", seed=3),
    "single, seeded later": lambda: make("CartPole"),
    "wrapped": lambda: wrap(make("CartPole", seed=3), [TimeLimit, 9], [FrameStack, 3]),
    "native batch": lambda: make("Catch", batch_size=4, seed=3),
    "batch": lambda: BatchedPyEnvironment(
        [make("Catch", seed=row) for row in range(4)], multithreading=False
    ),
    "pool": lambda: make("Catch", num_envs=4, backend="inline"),
    "virtual time": lambda: RealTimeEnvironment(
        "CartPole", hz=10, host="virtual", think_time=0.25
    ),
}


@pytest.mark.parametrize("kind", ENVIRONMENTS)
@pytest.mark.parametrize("when", ["always", "cubic"])
def test_the_same_environment_does_the_same(kind, when, tmp_path, capsys):
    env = ENVIRONMENTS[kind]()
    record(tmp_path / "r", env, when=when, seed=None if "3" in kind else 11)
    status = main(["replay", "--check", str(tmp_path / "r")])
    printed = capsys.readouterr()
    assert (0, "") == (status, printed.err)
    assert "the same, bit for bit" in printed.out


def test_another_process_finds_it_the_same(tmp_path):
    path = record(tmp_path / "r", make("Catch-v1", seed=3), steps=30)
    done = in_a_process("--check", path)
    assert (
        0,
        f"{path}: Catch-v1, written by envkit {envkit.__version__}\n"
        "  the same, bit for bit: 3 episodes, 30 time steps\n",
        "",
    ) == (done.returncode, done.stdout, done.stderr)


def test_episodes_in_between_are_played_and_not_compared(tmp_path, replay):
    path = record(tmp_path / "r", make("Catch", seed=3), steps=100, when="cubic")
    status, printed, _ = replay("--check", path)
    assert 0 == status
    assert "the same, bit for bit: 3 episodes, 30 time steps\n" in printed


def changed(path, name, change):
    """Changes an array of an episode."""
    file = path / "row-000" / name
    with np.load(file) as content:
        arrays = {key: content[key] for key in content.files}
    change(arrays)
    import zipfile

    with zipfile.ZipFile(file, "w") as archive:
        for key, value in arrays.items():
            if isinstance(value, bytes):
                archive.writestr(key, value)
            else:
                with archive.open(f"{key}.npy", "w") as member:
                    np.lib.format.write_array(member, value)


def test_the_first_difference_is_shown(tmp_path, replay):
    path = record(tmp_path / "r", make("Catch-v1", seed=3), steps=30)

    def flip(arrays):
        arrays["observation"][4, 0, 3] = 0.25

    changed(path, "episode-000001.npz", flip)
    assert (
        1,
        f"{path}: Catch-v1, written by envkit {envkit.__version__}\n"
        "  it differs, after 1 episode, 14 time steps that are the same\n"
        "\n"
        "  where      episode 1, step 4, at observation[0, 3]\n"
        "  recorded   0.25\n"
        "  now        0.0\n"
        "\n",
        "",
    ) == replay("--check", path)


def test_a_bit_is_enough(tmp_path, capsys):
    path = record(tmp_path / "r", make("Catch-v1", seed=3), steps=12)

    def negate(arrays):
        arrays["reward"][2] = -0.0

    changed(path, "episode-000000.npz", negate)

    assert 1 == main(["replay", "--check", str(path)])
    printed = capsys.readouterr().out
    assert "at reward\n  recorded   -0.0\n  now        0.0\n" in printed


class Drifting(CountingEnv):
    """Observes how many of its kind there have been."""

    made = 0

    def __init__(self):
        super().__init__()
        type(self).made += 1

    def _observe(self):
        return np.array(self.made, np.int32)

    def _step(self, action):
        return super()._step(action)._replace(observation=self._observe())


def test_an_environment_that_has_changed_differs(tmp_path, capsys):
    path = record(tmp_path / "r", make(f"{HERE}:Drifting"), steps=6)
    assert 1 == main(["replay", "--check", "--trust", str(path)])
    assert "episode 0, step 0, at observation\n" in capsys.readouterr().out


def test_a_difference_is_reported_with_changed_package_versions(tmp_path, capsys):
    path = record(tmp_path / "r", make(f"{HERE}:Drifting"), steps=6)
    file = path / "provenance.json"
    known = json.loads(file.read_text("utf-8"))
    known["packages"]["numpy"] = "1.0"
    file.write_text(json.dumps(known))
    main(["replay", "--check", "--trust", str(path)])

    assert (
        f"  numpy was 1.0 and is now {np.__version__}.\n"
        "  The recording names no seed.\n"
    ) in capsys.readouterr().out


def test_specs_that_have_changed_differ(tmp_path, capsys):
    path = record(tmp_path / "r", envkit.envs.Catch(rows=5, seed=1), steps=6)
    assert 1 == main(["replay", "--check", str(path)])
    printed = capsys.readouterr().out
    assert "at time_step_spec().observation\n" in printed
    assert (
        "The arguments of envkit.envs.catch:Catch are not known; none were given."
    ) in printed


def test_another_environment_can_be_named(tmp_path, capsys):
    path = record(tmp_path / "r", make(lambda: make("Catch", seed=1)), steps=20)
    assert 2 == main(["replay", "--check", str(path)])
    assert (
        f"envkit replay: It was made by {HERE}:test_another_environment_can_be_named."
        "<locals>.<lambda>, which no other program can import. Name what makes it with "
        "--env, as 'module:function'.\n"
    ) == capsys.readouterr().err
    assert 0 == main(["replay", "--check", str(path), "--env", f"{HERE}:make_catch"])


def make_catch():
    return make("Catch", seed=1)


# What cannot be checked.


def test_a_missing_version_is_named(tmp_path, capsys, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(registry, "_registry", dict(registry._registry))
        register("Catch-v9", CountingEnv)
        path = record(tmp_path / "r", make("Catch-v9"), steps=6)

    assert 2 == main(["replay", "--check", str(path)])
    assert (
        "envkit replay: Catch-v9 cannot be made again: There is no environment named "
        "'Catch-v9'; there is 'Catch-v1'.\n"
    ) == capsys.readouterr().err


def test_a_recording_that_began_midway_cannot_be_checked(tmp_path, capsys):
    env = make("Catch", seed=1)
    env.reset()
    path = record(tmp_path / "r", env, steps=6)
    assert 2 == main(["replay", "--check", str(path)])
    assert "was already running when Record wrapped it" in capsys.readouterr().err


def test_the_check_ends_where_a_state_was_set(tmp_path, capsys):
    with Record(make("Catch", seed=1), tmp_path / "r") as env:
        for _ in range(10):
            env.step(1)
        env.set_state(env.get_state())
        for _ in range(20):
            env.step(1)

    assert 2 == main(["replay", "--check", str(tmp_path / "r")])
    assert (
        "  the same, bit for bit: 1 episode, 10 time steps\n"
        "  Then a state was set that the recording does not hold: what follows "
        "cannot be compared.\n"
    ) in capsys.readouterr().out


@pytest.mark.parametrize("rows", [None, 2])
def test_the_check_ends_where_an_episode_is_missing(rows, tmp_path, capsys):
    env = make("Catch", seed=1, batch_size=rows)
    path = record(tmp_path / "r", env, steps=45)
    (path / "row-000/episode-000002.npz").unlink()
    of = " of row 0" if rows else ""
    assert 2 == main(["replay", "--check", str(path)])
    assert (
        f"  After that, nothing is known about episode 2{of}, and what follows depends "
        "on it.\n"
    ) in capsys.readouterr().out


def test_a_seed_in_the_middle_is_given_again(tmp_path):
    with Record(make("CartPole", seed=1), tmp_path / "r") as env:
        for step in range(40):
            if step == 17:
                env.seed(5)
                env.reset()
            env.step(step % 2)
    assert 0 == main(["replay", "--check", str(tmp_path / "r")])


def test_real_time_recordings_cannot_be_checked(tmp_path, capsys):
    env = RealTimeEnvironment("CartPole", hz=500, host="thread")
    path = record(tmp_path / "r", env, steps=3)
    assert 2 == main(["replay", "--check", str(path)])
    assert (
        "envkit replay: It ran in real time, which cannot be repeated. Recordings of "
        "host='virtual' can be checked.\n"
    ) == capsys.readouterr().err


def test_a_path_without_a_recording_is_reported(tmp_path, replay):
    assert (
        2,
        "",
        f"envkit replay: There is no recording in {str(tmp_path)!r}: it has no "
        "recording.json. A recording is the directory that Record was given.\n",
    ) == replay("--check", tmp_path)


# Showing.


def test_a_recording_is_shown(tmp_path, capsys):
    path = record(tmp_path / "r", make("Catch", batch_size=2, seed=1), steps=10)
    status = main(["replay", str(path)])
    assert 0 == status
    assert [
        f"{path}: Catch-v1, written by envkit {envkit.__version__}",
        "  row 0, episode 0: 8 steps, cut short by close",
        "  row 1, episode 0: 3 steps, cut short by reset",
        "  row 1, episode 1: 4 steps, cut short by close",
    ] == capsys.readouterr().out.splitlines()


def test_json_describes_a_recording(tmp_path, capsys):
    path = record(tmp_path / "r", make("Catch-v1", seed=1), steps=12)
    status = main(["replay", "--json", str(path)])

    assert 0 == status
    assert {
        "path": str(path),
        "id": "Catch-v1",
        "envkit": envkit.__version__,
        "batch_size": None,
        "episodes": [
            {"row": 0, "episode": 0, "steps": 9, "ended": "last", "lost": None},
            {"row": 0, "episode": 1, "steps": 1, "ended": "closed", "lost": None},
        ],
        "dropped": [],
    } == json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(("env", "same"), [("CartPole", False), ("CartPole-v1", True)])
def test_json_has_the_result_of_a_check(env, same, tmp_path, capsys):
    path = record(tmp_path / "r", make(env, seed=3 if same else None), steps=5)
    status = main(["replay", "--check", "--json", str(path)])
    told = json.loads(capsys.readouterr().out)

    assert (0 if same else 1, same) == (status, told["same"])
    if same:
        assert (None, None, 5) == (
            told["difference"],
            told["unchecked"],
            told["time_steps"],
        )
    else:
        assert "observation" in told["difference"]["place"]


# Playing.


@pytest.mark.parametrize(
    ("env", "options", "said"),
    [
        (
            "Catch",
            [],
            "The episodes are listed because there is no terminal to play them",
        ),
        ("CartPole", [], "The episodes are listed because they have no pictures.\n"),
        ("Catch", ["--list"], ""),
    ],
)
def test_in_a_pipe_episodes_are_listed_with_the_reason(
    env, options, said, tmp_path, capsys
):
    path = recorded_steps(tmp_path / "r", make(env, seed=1), steps=3)
    assert 0 == main(["replay", str(path), *options])
    printed = capsys.readouterr()
    assert "  episode 0: 2 steps, cut short by close" in printed.out.splitlines()
    assert printed.err.startswith(said)
    assert bool(said) == bool(printed.err)


@pytest.mark.slow
def test_in_a_terminal_pictures_are_played(tmp_path):
    path = record(tmp_path / "r", make("Catch", batch_size=2, seed=1), steps=40)
    with in_terminal("replay", path, "--hz", "1000") as terminal:
        terminal.wait_for("row 0")
        terminal.type("n")
        assert "▀" in terminal.wait_for("the end")
        terminal.type("q")
        assert 0 == terminal.end()[0]
        assert terminal.is_as_before


@pytest.mark.slow
@pytest.mark.parametrize(("env", "more"), [("CartPole", []), ("Catch", ["--list"])])
def test_in_a_terminal_other_recordings_are_listed(env, more, tmp_path):
    path = record(tmp_path / "r", make(env, seed=1), steps=4)
    with in_terminal("replay", path, *more) as terminal:
        terminal.wait_for("episode 0: 3 steps, cut short by close")
        assert 0 == terminal.end()[0]


# What the recording names, and who trusts it.


def test_without_a_terminal_other_code_needs_trust(tmp_path, replay):
    path = record(tmp_path / "r", make(f"{HERE}:make_catch"), steps=12)
    assert (
        2,
        "",
        f"envkit replay: Checking the recording in {str(path)!r} imports and calls "
        f"{HERE}:make_catch, and a recording that comes from elsewhere may name any "
        "code. If you trust this one, pass --trust.\n",
    ) == replay("--check", path)


def test_trusted_code_is_still_named(tmp_path, replay):
    path = record(tmp_path / "r", make(f"{HERE}:make_catch"), steps=12)
    status, printed, told = replay("--check", "--trust", path)
    assert (0, f"{path} imports and calls\n  {HERE}:make_catch\n") == (status, told)
    assert "the same, bit for bit" in printed


@pytest.mark.slow
@pytest.mark.parametrize(
    ("answer", "status", "last"),
    [
        ("y", 0, "the same, bit for bit: 2 episodes, 12 time steps"),
        ("", 2, "envkit replay: Nothing was imported or checked."),
    ],
)
def test_in_a_terminal_the_user_is_asked(answer, status, last, tmp_path):
    path = record(tmp_path / "r", make(f"{HERE}:make_catch"), steps=12)
    with in_terminal("replay", "--check", path) as terminal:
        assert f"  {HERE}:make_catch" in terminal.wait_for("Continue? [y/N] ")
        terminal.type(f"{answer}\n")
        terminal.wait_for(last)
        assert status == terminal.end()[0]


@pytest.mark.parametrize(
    "change",
    [
        {"id": "os:getpid"},
        {"id": "envkit.testing.envs:np.load"},
        {"id": "envkit.parallel:ParallelPyEnvironment"},
        {"id": "envkit.realtime:RealTimeEnvironment"},
        {"id": "envkit.registry:make"},
        {"id": "gymnasium:CartPole-v1"},
        {"wrappers": [{"class": "os:getpid", "arguments": {}}]},
        {"wrappers": [{"class": "os", "arguments": {}}]},
        {"wrappers": [{"class": "envkit.base_wrapper:sys.exit", "arguments": {}}]},
        {"arguments": {"rows": {"$name": "__main__:os"}}},
        {"arguments": {"rows": [{"$partial": [{"$name": "os:getpid"}, [], {}]}]}},
        {"arguments": {"r": {"$constructor": {"id": "os:getpid", "arguments": {}}}}},
    ],
    ids=str,
)
def test_anything_but_envkits_own_environments_needs_trust(change, tmp_path, capsys):
    path = record(tmp_path / "r", make("Catch", seed=1), steps=12)
    file = path / "provenance.json"
    file.write_text(json.dumps({**json.loads(file.read_text("utf-8")), **change}))
    assert 2 == main(["replay", "--check", str(path)])
    assert "If you trust this one, pass --trust." in capsys.readouterr().err


def test_escape_sequences_of_a_recording_are_written_out(tmp_path, capsys):
    path = record(tmp_path / "r", make("Catch", seed=1), steps=12)
    evil = "os:\x1b]0;owned\x07\x9b2J\ngetpid"
    for name, change in (
        ("provenance.json", {"id": evil}),
        ("recording.json", {"envkit": evil}),
    ):
        file = path / name
        file.write_text(json.dumps({**json.loads(file.read_text("utf-8")), **change}))
    for more in ([], ["--list"], ["--json"], ["--check"], ["--check", "--trust"]):
        main(["replay", str(path), *more])
        told = "".join(capsys.readouterr())

        assert r"\u001b]0;owned" in told, more
        assert not set("\x1b\x07\x9b") & set(told)
        assert "\ngetpid" not in told


def recorded_steps(path, env, steps):
    """Records some steps of the same action."""
    with Record(env, path) as recorded:
        for _ in range(steps):
            recorded.step(1)
    return path


def watched(path):
    recording = Recording(path)
    return Viewing(recording), pictures_of(recording)


def where(viewing):
    words = viewing.lines()[0].split()
    return int(words[words.index("episode") + 1]), int(words[words.index("step") + 1])


def test_a_recording_is_played_to_its_end(tmp_path):
    path = recorded_steps(tmp_path / "r", make("Catch", rows=3, seed=1), steps=6)
    viewing, look = watched(path)
    seen = []
    for _ in range(8):
        seen.append(where(viewing))
        viewing.tick()

    assert [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (1, 2), (1, 2)] == seen
    assert viewing.paused
    assert viewing.lines()[0].endswith("the end")
    assert (3, 5, 3) == viewing.scene(look).shape


def test_keys_move_back_and_forth(tmp_path):
    path = recorded_steps(tmp_path / "r", make("Catch", rows=3, seed=1), steps=9)
    viewing, _ = watched(path)
    seen = []
    for key in ["n", "right", "p", "p", "p", "left", "n", "left", "x", "n", "n", "n"]:
        viewing.press(key)
        seen.append(where(viewing))

    assert [
        *[(1, 0), (1, 1), (1, 0), (0, 0), (0, 0), (0, 0)],
        *[(1, 0), (0, 2), (0, 2), (1, 0), (2, 0), (2, 0)],
    ] == seen


def test_a_pause_lasts_until_it_is_ended_and_the_end_until_it_begins_anew(tmp_path):
    path = recorded_steps(tmp_path / "r", make("Catch", rows=2, seed=1), steps=2)
    viewing, _ = watched(path)
    viewing.press("space")
    viewing.tick()
    held = where(viewing)
    viewing.press("space")
    viewing.tick()
    moved = where(viewing)
    viewing.tick()
    viewing.press("space")

    assert ((0, 0), (0, 1), (0, 0), False) == (
        held,
        moved,
        where(viewing),
        viewing.paused,
    )
    viewing.press("esc")
    assert viewing.over


def test_noted_pictures_are_shown_before_observations(tmp_path):
    with Record(make("Catch", seed=1), tmp_path / "r") as env:
        for _ in range(3):
            env.step(1)
            env.annotate(frame=env.render())
    viewing, look = watched(tmp_path / "r")
    assert (160, 80, 3) == viewing.scene(look).shape


def test_a_recording_of_numbers_cannot_be_played(tmp_path):
    path = recorded_steps(tmp_path / "r", make("CartPole", seed=1), steps=3)
    assert pictures_of(Recording(path)) is None
