"""Says what a step of a batch costs, and how many machines a wanted rate would need.

    python examples/scale_model.py
    python examples/scale_model.py --rate=1e6 --step_us=250 --observation_bytes=28224

Costs are fitted to what `benchmarks/` has measured, so the first table shows how far
the model can be trusted: measured beside predicted. The second is a plan, simulated:
environments that take varying times, over workers, over machines, and a learner that
everything has to come to.

envkit runs environments on one machine. What stands here about more of them is
planning: the network's figures are assumptions, which flags change.
"""

from __future__ import annotations

import heapq
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from absl import app, flags

_RESULTS = flags.DEFINE_string(
    "results",
    str(Path(__file__).parent.parent / "benchmarks/results"),
    "Folder of measured figures.",
)
_RATE = flags.DEFINE_float("rate", 40_000.0, "Steps per second that are wanted.")
_STEP = flags.DEFINE_float("step_us", 500.0, "An environment's own step, in us.")
_SPREAD = flags.DEFINE_float(
    "spread", 0.5, "Standard deviation of step times, over their mean."
)
_BYTES = flags.DEFINE_integer("observation_bytes", 28_224, "Bytes of an observation.")
_ENVS = flags.DEFINE_integer("envs_per_worker", 8, "Environments of a worker.")
_CPUS = flags.DEFINE_integer("cpus", 16, "CPUs of a machine, and so its workers.")
_POLICY = flags.DEFINE_float("policy_us", 2_000.0, "What a batch takes the learner.")
_GBIT = flags.DEFINE_float("gbit", 10.0, "What the learner's network takes in.")
_LATENCY = flags.DEFINE_float("latency_us", 100.0, "One way through the network.")

# A parent and workers that have a CPU each look for so long before they fall asleep.
_LINGER_US = 100.0


@dataclass(frozen=True, slots=True)
class Costs:
    """What is fitted, in microseconds.

    Attributes:
        call: A step of a batch, whatever is in it.
        wake: Waking a worker that sleeps, and being woken by it.
        row: Taking an action and writing a time step, in the worker.
        kilobyte_written: Writing 1,000 bytes of an observation, in the worker.
        kilobyte_copied: Copying them for the caller; views cost nothing.
    """

    call: float
    wake: float
    row: float
    kilobyte_written: float
    kilobyte_copied: float


@dataclass(frozen=True, slots=True)
class Load:
    """What is to be stepped, and on what.

    Attributes:
        envs: Environments on each machine.
        workers: Workers on each machine.
        cpus: CPUs of each machine.
        step: Microseconds of an environment's own step.
        size: Bytes of an observation.
        copies: Whether the caller gets copies.
        waits: Whether environments wait instead of computing, and need no CPU.
        spread: Standard deviation of the step over its mean.
        machines: How many beside the learner's own; 0 for that one alone.
        policy: What a batch takes the learner, in microseconds.
    """

    envs: int
    workers: int
    cpus: int
    step: float
    size: int = 16
    copies: bool = True
    waits: bool = False
    spread: float = 0.0
    machines: int = 0
    policy: float = 0.0

    @property
    def rows(self) -> int:
        """How many environments the fullest worker has."""
        return -(-self.envs // self.workers)

    @property
    def crowding(self) -> float:
        """How many workers share a CPU."""
        return 1.0 if self.waits else max(1.0, self.workers / self.cpus)

    @property
    def sleeps(self) -> bool:
        """Whether workers have to be woken."""
        has_no_cpu = self.workers + 1 > self.cpus
        return has_no_cpu or self.rows * self.step > _LINGER_US


@dataclass(frozen=True, slots=True)
class Measured:
    """One measured figure: microseconds of a step of the batch."""

    name: str
    load: Load
    time: float


def parts_of(load: Load) -> Costs:
    """Returns how much of each cost is in a step of the batch."""
    rows = load.rows * load.crowding
    return Costs(
        call=1.0,
        wake=float(load.sleeps) * load.workers,
        row=rows,
        kilobyte_written=rows * load.size / 1e3,
        kilobyte_copied=load.envs * load.size / 1e3 * load.copies,
    )


def own_time(load: Load) -> float:
    """Returns what the environments take, whoever steps them."""
    return load.rows * load.crowding * load.step


def predict(load: Load, costs: Costs) -> float:
    """Returns the microseconds of a step of the batch, all steps taking the same."""
    return own_time(load) + float(np.dot(astuple(parts_of(load)), astuple(costs)))


def fit(measured: Sequence[Measured]) -> Costs:
    """Finds the costs with the least squares of relative errors, none below 0."""
    times = np.array([figure.time for figure in measured])
    parts = np.array([astuple(parts_of(figure.load)) for figure in measured])
    rest = times - [own_time(figure.load) for figure in measured]
    parts, rest = parts / times[:, None], rest / times
    costs, free = np.zeros(parts.shape[1]), list(range(parts.shape[1]))
    while free:
        found, *_ = np.linalg.lstsq(parts[:, free], rest, rcond=None)
        if (found >= 0).all():
            costs[free] = found
            break
        del free[int(np.argmin(found))]  # noise: what costs nothing can look so
    return Costs(*costs.tolist())


def simulate(
    load: Load,
    costs: Costs,
    *,
    share: float = 1.0,
    gbit: float = 10.0,
    latency: float = 100.0,
    seed: int = 0,
) -> tuple[float, float]:
    """Plays some seconds; returns steps per second, and the learner's share of them.

    Args:
        load: What is stepped.
        costs: What that costs.
        share: How many of the environments the learner waits for: 1 is lockstep, less
            is `recv(count)`.
        gbit: What the network brings to the learner per second.
        latency: Microseconds of one way through the network; 0 machines have none.
        seed: Of the step times.
    """
    remote = load.machines > 0
    workers = load.workers * max(1, load.machines)
    envs = load.envs * max(1, load.machines)
    worker_of = np.arange(envs) * workers // envs
    wait_for = max(1, round(share * envs))
    way = latency if remote else 0.0
    on_wire = load.size * 8 / (gbit * 1e3) if remote else 0.0
    kilobytes = load.size / 1e3
    per_row = costs.row + costs.kilobyte_written * kilobytes
    # Machines wake their workers at the same time; the learner writes to each machine.
    wake = costs.wake * load.sleeps / max(1, load.machines)
    copying = costs.kilobyte_copied * kilobytes * load.copies

    draw = _step_times(load, np.random.default_rng(seed))
    worker_free, network_free = np.zeros(workers), 0.0
    answers: list[tuple[float, int]] = []
    now, thought, done, everyone = 0.0, 0.0, 0, list(range(envs))
    ready = everyone
    batches = max(3, min(200, 20_000 // wait_for))
    for _ in range(batches):
        now += wake * len(set(worker_of[ready].tolist()))
        times = load.crowding * (draw(len(ready)) + per_row)
        for row, time in zip(ready, times.tolist(), strict=True):
            worker = worker_of[row]
            worker_free[worker] = max(worker_free[worker], now + way) + time
            heapq.heappush(answers, (float(worker_free[worker]) + way, row))
        ready = []
        for _ in range(wait_for):
            answered, row = heapq.heappop(answers)
            network_free = max(network_free, answered) + on_wire
            now = max(now, network_free)
            ready.append(row)
        spent = load.policy + costs.call + copying * len(ready)
        now, thought, done = now + spent, thought + spent, done + len(ready)
    return done / now * 1e6, thought / now


def _step_times(load: Load, rng: np.random.Generator) -> Any:
    """Returns what draws step times: lognormal, as most of them look."""
    if not load.spread:
        return lambda count: np.full(count, load.step)
    sigma = np.sqrt(np.log1p(load.spread**2))
    mean = np.log(max(load.step, 1e-9)) - sigma**2 / 2
    return lambda count: rng.lognormal(mean, sigma, count)


def measurements(folder: Path) -> list[Measured]:
    """Reads the figures of envkit's pools that are there."""
    found: list[Measured] = []
    for read in (_of_efficiency, _of_parallel_step, _of_images, _of_scaling):
        path = folder / f"{read.__name__.removeprefix('_of_')}.json"
        if path.exists():
            found += read(json.loads(path.read_text("utf-8")))
    return found


def _of_efficiency(result: Any) -> Iterator[Measured]:
    cpus = result["machine"]["cpus"]
    for title, table in result["tables"].items():
        figures = table["figures"]
        if shape := re.match(r"(\d+) environments that .*, (\d+) workers", title):
            envs, workers = map(int, shape.groups())
            own = np.median(figures["ideal"]) * min(workers, cpus) / envs
        else:
            envs = workers = 1
            own = 0.0
        load = Load(envs, workers, cpus, float(own))
        yield from _with_and_without_copies(title, load, figures)


def _of_parallel_step(result: Any) -> Iterator[Measured]:
    cpus = result["machine"]["cpus"]
    title, growth = result["tables"]
    envs, workers = map(int, re.findall(r"(\d+)", title))
    figures = result["tables"][title]["figures"]
    ideal = np.median(figures["ideal: two loops that never talk"])
    own = float(ideal) * min(workers, cpus) / envs
    load = Load(envs, workers, cpus, own)
    yield from _with_and_without_copies(f"CartPole: {title}", load, figures)
    for size, times in result["tables"][growth]["figures"].items():
        envs = int(size)
        load = Load(envs, min(workers, envs), cpus, own)
        yield Measured(f"CartPole: {size} of them", load, float(np.median(times)))


def _of_images(result: Any) -> Iterator[Measured]:
    cpus = result["machine"]["cpus"]
    for title, table in result["tables"].items():
        envs, *sides, workers = map(int, re.findall(r"\d+", title))
        load = Load(envs, workers, cpus, 0.0, int(np.prod(sides)))
        yield from _with_and_without_copies(title, load, table["figures"])


def _with_and_without_copies(title: str, load: Load, figures: Any) -> Iterator[Any]:
    for name, copies in (("envkit", True), ("envkit, zero_copy", False)):
        if figures.get(name):
            what = title if copies else f"views: {title}"
            time = float(np.median(figures[name]))
            yield Measured(what, replace(load, copies=copies), time)


def _of_scaling(result: Any) -> Iterator[Measured]:
    cpus = result["machine"]["cpus"]
    for title, curve in result["curves"].items():
        axis, figures = curve["axis"], curve["figures"]
        told = {
            word: int(number)
            for number, word in re.findall(r"(\d+) (environments|workers)", title)
        }
        for place, point in enumerate(curve["points"]):
            envs = int(point) if axis == "environments" else told["environments"]
            workers = int(point) if axis == "workers" else told["workers"]
            workers = min(workers, envs)
            ideal = float(np.median(figures["ideal"][place]))
            own = min(workers, cpus) * 1e6 / ideal
            size = int(point) if axis.startswith("bytes") else 16
            load = Load(envs, workers, cpus, own, size)
            times = {
                name: [envs * 1e6 / rate for rate in rates[place]]
                for name, rates in figures.items()
                if name.startswith("envkit")
            }
            name = f"{axis} {point:,}: {title}"
            yield from _with_and_without_copies(name, load, times)


def show_fit(measured: Sequence[Measured], costs: Costs) -> None:
    """Prints what was fitted, and how well."""
    print(f"Fitted to {len(measured)} measurements, in microseconds:")
    print(f"  a step of a batch            {costs.call:8.2f}")
    print(f"  waking a worker              {costs.wake:8.2f}")
    print(f"  a row                        {costs.row:8.2f}")
    print(f"  writing a kilobyte           {costs.kilobyte_written:8.3f}")
    print(f"  copying a kilobyte           {costs.kilobyte_copied:8.3f}")
    print()
    print(f"{'us per step of the batch':58}  measured  predicted   off")
    for figure in measured:
        predicted = predict(figure.load, costs)
        off = predicted / figure.time - 1
        print(f"{figure.name:58.58} {figure.time:9,.1f} {predicted:10,.1f} {off:+5.0%}")
    off = [abs(predict(each.load, costs) / each.time - 1) for each in measured]
    print(f"Half of the predictions are off by less than {np.median(off):.0%}.")


def show_plan(costs: Costs) -> None:
    """Prints what more and more machines would bring, up to the wanted rate."""
    load = Load(
        envs=_ENVS.value * _CPUS.value,
        workers=_CPUS.value,
        cpus=_CPUS.value,
        step=_STEP.value,
        size=_BYTES.value,
        spread=_SPREAD.value,
        policy=_POLICY.value,
    )
    print(
        f"\nWanted: {_RATE.value:,.0f} steps per second, of {_STEP.value:,.0f} us and "
        f"{_BYTES.value:,} bytes.\n"
        f"A machine: {load.cpus} CPUs, {load.workers} workers, {load.envs} "
        "environments.\n"
        f"The learner: {_POLICY.value:,.0f} us for a batch; a network of "
        f"{_GBIT.value:g} Gbit/s, {_LATENCY.value:,.0f} us away.\n"
    )
    print("            in lockstep              recv(half)")
    print("machines   steps/s  learner busy   steps/s  learner busy  Gbit/s")
    best = 0.0
    for machines in (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32):
        cells, rate = [], 0.0
        for share in (1.0, 0.5):
            rate, busy = simulate(
                replace(load, machines=machines),
                costs,
                share=share,
                gbit=_GBIT.value,
                latency=_LATENCY.value,
            )
            cells.append(f"{rate:8,.0f}  {busy:12.0%}")
        traffic = rate * load.size * 8 / 1e9 if machines else 0.0
        name = machines or "this one"
        print(f"{name!s:>8}  {cells[0]}  {cells[1]}  {traffic:6.2f}")
        if rate >= _RATE.value:
            where = f"{machines} machines" if machines else "this machine"
            print(f"\nThe wanted rate is reached with {where}, by recv(half).")
            return
        if machines > 1 and rate < 1.05 * best:
            break
        best = max(best, rate)
    print(
        "\nMore machines do not bring the wanted rate: the learner or its network is "
        "the narrow place. Give the policy larger batches or less to do, make "
        "observations smaller, or let several learners share the work."
    )


def main(_: Sequence[str]) -> None:
    """Fits, compares, and plans."""
    measured = measurements(Path(_RESULTS.value))
    costs = fit(measured)
    show_fit(measured, costs)
    show_plan(costs)


if __name__ == "__main__":
    app.run(main)
