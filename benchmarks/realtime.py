"""How well a clock keeps time beside a busy agent.

    python benchmarks/realtime.py

An environment that does next to nothing runs at 10, 60 and 240 Hz, while the agent is
idle, busy in Python, or busy in NumPy for longer than a tick, and then takes a step.
The tables show how many of the due ticks came, and how late: for the clock in a process
of its own, for the clock in a thread beside the agent, and for `rtgym`, where it is
installed, which steps in the agent's own process.
"""

from __future__ import annotations

import functools
import importlib.util
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from side_by_side import Figures, Report, options

from envkit import ArraySpec, BoundedArraySpec, PyEnvironment, restart, transition
from envkit.realtime import RealTimeEnvironment

HZ = [10, 60, 240]
FEWEST = 3
COLUMNS = ["% of ticks that came", "ms late, median", "ms late, 99 %"]


class Metronome(PyEnvironment):
    """Notes when it is stepped, and tells as its picture."""

    def __init__(self) -> None:
        super().__init__()
        self._moments: list[float] = []

    def observation_spec(self) -> ArraySpec:
        return ArraySpec((4,), np.float32)

    def action_spec(self) -> BoundedArraySpec:
        return BoundedArraySpec((), np.int64, 0, 1)

    def render(self, mode: str = "moments") -> Any:
        return np.array(self._moments)

    def _reset(self) -> Any:
        self._moments = [time.monotonic()]
        return restart(np.zeros(4, np.float32))

    def _step(self, action: Any) -> Any:
        self._moments.append(time.monotonic())
        return transition(np.zeros(4, np.float32), 1.0)


def idle(seconds: float) -> None:
    time.sleep(seconds)


def busy_in_python(seconds: float) -> None:
    end, total = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        for number in range(500):
            total += number * number


def busy_in_numpy(seconds: float) -> None:
    end = time.monotonic() + seconds
    matrix = np.random.default_rng(0).random((256, 256))
    while time.monotonic() < end:
        matrix @= matrix
        matrix /= np.abs(matrix).max()


AGENTS = {
    "idle": idle,
    "busy in Python": busy_in_python,
    "busy in NumPy": busy_in_numpy,
}


def clocked(host: str, hz: int, think: Callable[[float], None], told: Any) -> Any:
    """Returns when the environment was stepped, beside an agent that thinks."""
    env = RealTimeEnvironment(Metronome, hz, host=host, wait="newest")
    env.reset()
    end = time.monotonic() + told.seconds
    # However short the time is, there are ticks to look at.
    while time.monotonic() < end or env.lag().observation_tick < FEWEST:
        think(told.think)
        env.step(1)
    moments = env.render("moments")
    env.close()
    return moments


def elastic(hz: int, think: Callable[[float], None], told: Any) -> Any:
    """Does the same with rtgym, whose time steps are those of the agent."""
    from gymnasium import spaces
    from rtgym import DEFAULT_CONFIG_DICT, RealTimeGymInterface
    from rtgym.envs.real_time_env import RealTimeEnv

    moments = []

    class Noting(RealTimeGymInterface):
        def send_control(self, control: Any) -> None:
            moments.append(time.monotonic())

        def reset(self, seed: Any = None, options: Any = None) -> Any:
            return [np.zeros(4, np.float32)], {}

        def get_obs_rew_terminated_info(self) -> Any:
            return [np.zeros(4, np.float32)], 1.0, False, {}

        def get_observation_space(self) -> Any:
            return spaces.Tuple((spaces.Box(-1, 1, (4,), np.float32),))

        def get_action_space(self) -> Any:
            return spaces.Box(-1.0, 1.0, (1,))

        def get_default_action(self) -> Any:
            return np.zeros(1, np.float32)

        def wait(self) -> None:
            pass

    config = {
        **DEFAULT_CONFIG_DICT,
        "interface": Noting,
        "time_step_duration": 1 / hz,
        "start_obs_capture": 1 / hz,
        "ep_max_length": 10**9,
    }
    with warnings.catch_warnings():
        # It warns at each time step that the agent has missed.
        warnings.simplefilter("ignore")
        env = RealTimeEnv(config)
        env.reset()
        end = time.monotonic() + told.seconds
        while time.monotonic() < end or len(moments) <= FEWEST:
            think(told.think)
            env.step(np.zeros(1, np.float32))
    return np.array(moments)


def kept(moments: np.ndarray, hz: int) -> tuple[float, np.ndarray]:
    """Returns the share of ticks that came, and by how many ms each was late."""
    since = moments[1:] - moments[0]
    due = since[-1] * hz
    # A tick that is late by a whole one is another.
    late = since - np.floor(since * hz + 0.02) / hz
    return len(since) / max(due, 1), 1000 * np.maximum(late, 0.0)


def compare(report: Report, hz: int, agent: str, told: Any) -> None:
    think = AGENTS[agent]
    clocks: dict[str, Callable[[], Any]] = {
        name: functools.partial(clocked, name, hz, think, told)
        for name in ("process", "thread")
    }
    if importlib.util.find_spec("rtgym"):
        clocks["rtgym"] = functools.partial(elastic, hz, think, told)
    figures: Figures = {
        f"{name}: {column}": []
        for name in ("process", "thread", "rtgym")
        for column in COLUMNS
    }
    for _ in range(told.rounds):
        for name, run in clocks.items():
            share, late = kept(run(), hz)
            measured = 100 * share, np.median(late), np.percentile(late, 99)
            for column, figure in zip(COLUMNS, measured, strict=True):
                figures[f"{name}: {column}"].append(float(figure))
    report.table(f"{hz} Hz, agent {agent}", figures, "of the rounds")
    if (hz, agent) != (60, "busy in Python"):
        return
    report.ratio(
        "process clock at 60 Hz beside busy Python: % of ticks lost",
        [max(100 - share, 0.0) for share in figures[f"process: {COLUMNS[0]}"]],
        [1.0] * told.rounds,
        at_most=1.0,
    )
    report.ratio(
        "process clock's median lateness over the thread clock's",
        figures[f"process: {COLUMNS[1]}"],
        figures[f"thread: {COLUMNS[1]}"],
        at_most=0.2,
    )


def main() -> None:
    parser = options(__doc__, rounds=3, seconds=2.0)
    parser.add_argument("--think", type=float, default=0.05, help="seconds per step")
    parser.add_argument("--hz", type=int, nargs="+", default=HZ)
    told = parser.parse_args()
    report = Report("realtime")
    for hz in told.hz:
        for agent in AGENTS:
            compare(report, hz, agent, told)
    report.finish(told.json)


if __name__ == "__main__":
    main()
