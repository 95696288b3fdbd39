"""What each wrapper adds to a step of a batch.

    python benchmarks/wrappers.py

Each wrapper steps a batch of 1,024 rows beside the bare batch: a CartPole, or where the
wrapper needs something else, a CartPole with continuous actions or a named observation,
or GridWorld's pictures. A ratio of 1.2 means that the wrapper makes the step a fifth
longer. `ActionRepeat` makes two steps of the environment, `FixedLength` steps few rows
while the others wait, and `PassiveChecker` is for debugging.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np
from side_by_side import Contender, Figures, Report, opened, options, take_turns

from envkit import BoundedArraySpec, wrappers
from envkit.envs import CartPole, GridWorld
from envkit.wrappers import wrap

Wrap = Callable[[Any], Any]


def cartpole(rows: int) -> Any:
    return CartPole(batch_size=rows, seed=0)


def continuous(rows: int) -> Any:
    """A CartPole that is pushed to the right by what is above zero."""
    return wrappers.TransformAction(
        cartpole(rows),
        lambda force: (force[..., 0] > 0).astype(np.int64),
        BoundedArraySpec((1,), np.float32, -1.0, 1.0),
    )


def named(rows: int) -> Any:
    """A CartPole whose observation has parts with names."""
    spec = {"place": CartPole().observation_spec()}
    return wrappers.TransformObservation(
        cartpole(rows), lambda observation: {"place": observation}, spec
    )


def pictures(rows: int) -> Any:
    return GridWorld(size=8, batch_size=rows, seed=0)


class Goals(wrappers.GoalReplayEnvWrapper):
    """Takes the first observation of an episode as its goal."""

    def get_trajectory_with_goal(self, trajectory: Any, goal: Any) -> Any:
        return trajectory

    def get_goal_from_trajectory(self, trajectory: Any) -> Any:
        return trajectory.observation


def film(env: Any) -> Any:
    """Waits for an episode that is to be filmed; most of the time that is all."""
    return wrappers.RecordVideo(
        env, tempfile.mkdtemp(), episode_trigger=lambda episode: False
    )


# By batch: what is put around it.
WRAPPED: dict[Callable[[int], Any], dict[str, Wrap]] = {
    cartpole: {
        "PyEnvironmentBaseWrapper": wrappers.PyEnvironmentBaseWrapper,
        "TimeLimit": lambda env: wrappers.TimeLimit(env, 200),
        "FixedLength": lambda env: wrappers.FixedLength(env, 100),
        "ActionRepeat, twice": lambda env: wrappers.ActionRepeat(env, 2),
        "StickyAction": lambda env: wrappers.StickyAction(env, 0.25),
        "RunStats": wrappers.RunStats,
        "RecordEpisodeStatistics": wrappers.RecordEpisodeStatistics,
        "LogEpisodes, CSV": lambda env: wrappers.LogEpisodes(
            env, tempfile.mkdtemp(), tensorboard=False
        ),
        "PerformanceProfiler": lambda env: wrappers.PerformanceProfiler(
            env, lambda profile: None, 1000
        ),
        "PassiveChecker": wrappers.PassiveChecker,
        "GoalReplayEnvWrapper": Goals,
        "ActionOffsetWrapper": wrappers.ActionOffsetWrapper,
        "OneHotActionWrapper": wrappers.OneHotActionWrapper,
        "FlattenActionWrapper": wrappers.FlattenActionWrapper,
        "ExtraDisabledActionsWrapper": lambda env: wrappers.ExtraDisabledActionsWrapper(
            env, 2
        ),
        "TransformObservation": lambda env: wrappers.TransformObservation(
            env, lambda observation: observation * 2
        ),
        "DtypeObservation": lambda env: wrappers.DtypeObservation(env, np.float64),
        "ReshapeObservation": lambda env: wrappers.ReshapeObservation(env, (2, 2)),
        "ObservationFilterWrapper": lambda env: wrappers.ObservationFilterWrapper(
            env, [0, 2]
        ),
        "TimeAwareObservation": wrappers.TimeAwareObservation,
        "HistoryWrapper": wrappers.HistoryWrapper,
        "FrameStack, 4": lambda env: wrappers.FrameStack(env, 4),
        "DelayObservation": lambda env: wrappers.DelayObservation(env, 2),
        "ClipReward": lambda env: wrappers.ClipReward(env, -1.0, 1.0),
        "TransformReward": lambda env: wrappers.TransformReward(env, np.sign),
        "NormalizeObservation": wrappers.NormalizeObservation,
        "NormalizeReward": wrappers.NormalizeReward,
        "RecordVideo, waiting": film,
        "TimeLimit, FrameStack, NormalizeReward": lambda env: wrap(
            env,
            [wrappers.TimeLimit, 200],
            [wrappers.FrameStack, 4],
            wrappers.NormalizeReward,
        ),
    },
    continuous: {
        "TransformAction": lambda env: wrappers.TransformAction(
            env, lambda force: force / 2
        ),
        "ActionClipWrapper": wrappers.ActionClipWrapper,
        "RescaleAction": lambda env: wrappers.RescaleAction(env, -2.0, 2.0),
        "ActionDiscretizeWrapper": lambda env: wrappers.ActionDiscretizeWrapper(env, 5),
    },
    named: {
        "FlattenObservationsWrapper": wrappers.FlattenObservationsWrapper,
        "SelectObservation": lambda env: wrappers.SelectObservation(env, "place"),
        "RenameObservation": lambda env: wrappers.RenameObservation(
            env, {"place": "state"}
        ),
    },
    pictures: {
        "RescaleObservation": lambda env: wrappers.RescaleObservation(env, 0.0, 1.0),
        "GrayscaleObservation": wrappers.GrayscaleObservation,
        "ResizeObservation, to 4x4": lambda env: wrappers.ResizeObservation(
            env, (4, 4)
        ),
        "CropObservation": lambda env: wrappers.CropObservation(env, 1, 1, 6, 6),
    },
}
TITLES = {
    cartpole: "CartPole",
    continuous: "CartPole with continuous actions",
    named: "CartPole with a named observation",
    pictures: "GridWorld",
}


def stepping(env: Any, rows: int) -> Contender:
    """Steps with one of some batches of actions, drawn before."""
    env.seed(0)
    env.reset()
    rng = np.random.default_rng(0)
    spec = env.action_spec()
    low, high = spec.minimum, spec.maximum
    if spec.dtype.kind in "iu":
        # Disabled actions are the last ones.
        high = np.minimum(high, low + 1)
        draw = rng.integers(low, high + 1, (16, rows, *spec.shape), spec.dtype)
    else:
        draw = rng.uniform(low, high, (16, rows, *spec.shape)).astype(spec.dtype)
    actions = list(draw)
    moment = 0

    def step() -> None:
        nonlocal moment
        moment = (moment + 1) % len(actions)
        env.step(actions[moment])

    return Contender(step, env.close)


def measure(make: Callable[[int], Any], told: Any) -> Figures:
    rows = told.rows
    makers: dict[str, Callable[[], Contender] | None] = {
        "bare": lambda: stepping(make(rows), rows)
    }
    for name, wrapper in WRAPPED[make].items():
        makers[name] = lambda wrapper=wrapper: stepping(wrapper(make(rows)), rows)  # type: ignore[misc]  # a default binds it
    with opened(makers) as contenders:
        return take_turns(contenders, told.rounds, told.seconds)


def main() -> None:
    parser = options(__doc__, rounds=7, seconds=0.05, rows=1024)
    told = parser.parse_args()
    report = Report("wrappers")
    for make, title in TITLES.items():
        figures = measure(make, told)
        report.table(f"{title}, {told.rows} rows", figures)
        for name in WRAPPED[make]:
            report.ratio(name, figures[name], figures["bare"])
    report.finish(told.json)


if __name__ == "__main__":
    main()
