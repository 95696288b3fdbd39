"""Lost environments in recordings: what files, replays and the commands say of them."""

from __future__ import annotations

import copy
import functools
import json

import pytest

from envkit import AutoReset, RestartPolicy
from envkit.cli.main import main
from envkit.recording import Record, Recording, Replay
from envkit.testing import CountingEnv, CrashingEnv
from tests.parallel.streams import pool_of


def recorded(path, order="next_step", how="exit"):
    """Records a pool whose first row fails in its third step, again and again."""
    pool = pool_of(
        [functools.partial(CrashingEnv, 3, how), functools.partial(CountingEnv, 4)],
        "process",
        num_workers=2,
        on_worker_failure=RestartPolicy(max_restarts=99, backoff=0),
        autoreset=order,
    )
    with Record(pool, path) as env:
        time_step = env.reset()
        for _ in range(10):
            if order == "disabled" and time_step.is_last().any():
                env.reset(time_step.is_last())
            time_step = env.step([0, 0])
    return Recording(path)


def losses_of(recording):
    return [
        (episode.row, episode.number, getattr(loss, "kind", None))
        for episode in recording.episodes()
        for loss in [recording.loss_of(episode)]
        if episode.ended == "last"
    ]


@pytest.mark.parametrize("order", [order.value for order in AutoReset])
def test_a_recording_tells_which_episodes_were_lost(order, tmp_path):
    recording = recorded(tmp_path / "r", order)
    told = losses_of(recording)
    assert {(row, kind) for row, _, kind in told} == {(0, "crashed"), (1, None)}
    lost = [(row, number) for row, number, kind in told if kind]
    assert lost == recording.lost_episodes()
    first = next(recording.episodes())
    assert "WorkerCrashed: " in str(recording.loss_of(first).error)


def test_the_kind_of_an_exception_is_kept(tmp_path):
    told = losses_of(recorded(tmp_path / "r", how="raise"))
    assert {kind for _, _, kind in told} == {"raised", None}


def test_a_file_that_names_no_kind_can_still_be_read(tmp_path):
    recorded(tmp_path / "r")
    log = tmp_path / "r" / "log.jsonl"
    events = [json.loads(line) for line in log.read_text().splitlines()]
    for event in events:
        event.pop("kind", None)
        event.pop("error", None)
    log.write_text("".join(f"{json.dumps(event)}\n" for event in events))
    assert {kind for _, _, kind in losses_of(Recording(tmp_path / "r"))} == {
        "unknown",
        None,
    }


def test_a_replay_is_repaired_where_its_recording_was(tmp_path):
    recorded(tmp_path / "r")
    env = Replay(tmp_path / "r", row=0, at_end="repeat")
    assert not env.repaired
    env.reset()
    assert [bool(env.step(0) and env.repaired) for _ in range(7)] == [
        *[False, False, True],
        *[False, False, False, True],
    ]
    again = copy.deepcopy(env)
    assert again.repaired
    assert env.current_losses()[0].kind == "crashed"
    assert [(loss.row, loss.kind) for loss in env.losses()] == [(0, "crashed")] * 2
    assert env.losses() == []
    assert not Replay(tmp_path / "r", row=1).losses()


def test_a_pool_of_replays_passes_their_losses_on(tmp_path):
    recorded(tmp_path / "r")
    makers = [functools.partial(Replay, tmp_path / "r", row=row) for row in (1, 0)]
    with pool_of(makers, "process", num_workers=1) as env:
        env.reset()
        for _ in range(3):
            env.step([0, 0])
        assert env.repaired.tolist() == [False, True]
        assert env.current_losses()[1].kind == "crashed"


def test_the_list_of_episodes_names_the_lost_ones(tmp_path, capsys):
    recorded(tmp_path / "r")
    assert main(["replay", "--list", str(tmp_path / "r")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == (
        "  row 0, episode 0: 3 steps, cut short because its environment was lost "
        "(crashed)"
    )
    assert lines[-2] == "  row 1, episode 1: 4 steps"
    assert main(["replay", "--json", str(tmp_path / "r")]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["episodes"][0]["lost"] == "crashed"
