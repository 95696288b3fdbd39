"""Says what a step of a batch costs, and how many machines a wanted rate would need.

    python examples/scale_model.py
    python examples/scale_model.py --rate=1e6 --step_us=250 --observation_bytes=28224

Costs are fitted to what `benchmarks/` has measured, so the first table shows how far
the model can be trusted: measured beside predicted. The second is a plan, simulated:
environments that take varying times, over workers, over machines, and a learner that
everything has to come to. The third says what fleets of linked workers would reach.

What a link costs is measured, too, between processes of one machine; what lies between
machines is an assumption, which flags change.
"""

from __future__ import annotations

import argparse
import heapq
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

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
class LinkCosts:
    """What rows cost the learner that come over links, in microseconds.

    Attributes:
        frame: Asking a worker and being answered, beyond what waking it costs.
        kilobyte: Sending and receiving 1,000 bytes of an observation.
    """

    frame: float = 0.0
    kilobyte: float = 0.0


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
    links: LinkCosts = LinkCosts(),
    share: float = 1.0,
    gbit: float = 10.0,
    latency: float = 100.0,
    seed: int = 0,
) -> tuple[float, float]:
    """Plays some seconds; returns steps per second, and the learner's share of them.

    Args:
        load: What is stepped.
        costs: What that costs.
        links: What links cost, if there are machines.
        share: How many of the environments the learner waits for: 1 is lockstep, less
            is `recv(count)`.
        gbit: What the network brings to the learner per second.
        latency: Microseconds of one way through the network; 0 machines have none.
        seed: Of the step times.
    """
    remote = load.machines > 0
    workers = load.workers * max(1, load.machines)
    envs = load.envs * max(1, load.machines)
    # Lists: to read one number after the other takes half as long as from an array.
    worker_of = (np.arange(envs) * workers // envs).tolist()
    wait_for = max(1, round(share * envs))
    way = latency if remote else 0.0
    on_wire = load.size * 8 / (gbit * 1e3) if remote else 0.0
    kilobytes = load.size / 1e3
    per_row = costs.row + costs.kilobyte_written * kilobytes
    # Machines wake their workers at the same time; the learner writes to each machine.
    wake = costs.wake * load.sleeps / max(1, load.machines)
    copying = costs.kilobyte_copied * kilobytes * load.copies
    frame = links.frame * remote
    copying += links.kilobyte * kilobytes * remote

    draw = _step_times(load, np.random.default_rng(seed))
    worker_free, network_free = [0.0] * workers, 0.0
    answers: list[tuple[float, int]] = []
    now, thought, done, everyone = 0.0, 0.0, 0, list(range(envs))
    ready = everyone
    batches = max(3, min(200, 20_000 // wait_for))
    for _ in range(batches):
        now += wake * len({worker_of[row] for row in ready})
        times = load.crowding * (draw(len(ready)) + per_row)
        for row, time in zip(ready, times.tolist(), strict=True):
            worker = worker_of[row]
            worker_free[worker] = max(worker_free[worker], now + way) + time
            heapq.heappush(answers, (worker_free[worker] + way, row))
        ready = []
        for _ in range(wait_for):
            answered, row = heapq.heappop(answers)
            network_free = max(network_free, answered) + on_wire
            now = max(now, network_free)
            ready.append(row)
        frames = len({worker_of[row] for row in ready}) if frame else 0
        spent = load.policy + costs.call + copying * len(ready) + frame * frames
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


def link_costs(folder: Path) -> LinkCosts:
    """Reads what links add to a step of worker processes; nothing if that is missing.

    Environments that do nothing tell of the frames, and pictures of the bytes.
    """
    path = folder / "links.json"
    if not path.exists():
        return LinkCosts()
    added = {}
    for title, table in json.loads(path.read_text("utf-8"))["tables"].items():
        if "linked" not in table["figures"]:
            continue
        envs, workers = map(int, re.findall(r"^\d+|\d+(?= workers)", title))
        figures = {name: np.median(each) for name, each in table["figures"].items()}
        added[title.partition(" ")[2]] = (
            figures["linked"] - figures["process"], envs, workers
        )  # fmt: skip
    idle, _, workers = added[f"environments that do nothing, {workers} workers"]
    shown, envs, _ = added[f"environments that show 84 x 84 bytes, {workers} workers"]
    frame, kilobyte = idle / workers, (shown - idle) / (envs * 84 * 84 / 1e3)
    return LinkCosts(max(0.0, float(frame)), max(0.0, float(kilobyte)))


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
    title, growth, *_ = result["tables"]
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


def show_links(links: LinkCosts) -> None:
    """Prints what links cost."""
    print(
        "\nOver links, in microseconds of the learner's time:\n"
        f"  a worker's frames            {links.frame:8.2f}\n"
        f"  a kilobyte                   {links.kilobyte:8.3f}"
    )


def show_plan(options: argparse.Namespace, costs: Costs, links: LinkCosts) -> None:
    """Prints what more and more machines would bring, up to the wanted rate."""
    load = Load(
        envs=options.envs_per_worker * options.cpus,
        workers=options.cpus,
        cpus=options.cpus,
        step=options.step_us,
        size=options.observation_bytes,
        spread=options.spread,
        policy=options.policy_us,
    )
    print(
        f"\nWanted: {options.rate:,.0f} steps per second, of {options.step_us:,.0f} us "
        f"and {options.observation_bytes:,} bytes.\n"
        f"A machine: {load.cpus} CPUs, {load.workers} workers, {load.envs} "
        "environments.\n"
        f"The learner: {options.policy_us:,.0f} us for a batch; a network of "
        f"{options.gbit:g} Gbit/s, {options.latency_us:,.0f} us away.\n"
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
                links=links,
                share=share,
                gbit=options.gbit,
                latency=options.latency_us,
            )
            cells.append(f"{rate:8,.0f}  {busy:12.0%}")
        traffic = rate * load.size * 8 / 1e9 if machines else 0.0
        name = machines or "this one"
        print(f"{name!s:>8}  {cells[0]}  {cells[1]}  {traffic:6.2f}")
        if rate >= options.rate:
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


def show_fleets(options: argparse.Namespace, costs: Costs, links: LinkCosts) -> None:
    """Prints what fleets of several sizes reach without a policy."""
    share = 64
    size = f"{options.observation_bytes:,}"
    print(
        f"\nFleets of machines with {options.cpus} CPUs, {share} environments for each "
        f"CPU, {size} bytes of\nobservation, and no policy: what they reach, and which "
        "part of what the CPUs could do.\n"
    )
    print("                          in lockstep           recv(half)")
    print("environments  of us     steps/s   reached    steps/s   reached  Gbit/s")
    for envs in options.fleets:
        for step in (100.0, 1_000.0, 10_000.0):
            machines = max(1, round(envs / (share * options.cpus)))
            load = Load(
                envs=envs // machines,
                workers=options.cpus,
                cpus=options.cpus,
                step=step,
                size=options.observation_bytes,
                spread=options.spread,
                machines=machines,
            )
            ideal = machines * options.cpus * 1e6 / step
            cells, rate = [], 0.0
            for part in (1.0, 0.5):
                rate, _ = simulate(
                    load,
                    costs,
                    links=links,
                    share=part,
                    gbit=options.gbit,
                    latency=options.latency_us,
                )
                cells.append(f"{rate:10,.0f}  {rate / ideal:8.0%}")
            traffic = rate * load.size * 8 / 1e9
            print(f"{envs:12,} {step:6,.0f}  {cells[0]} {cells[1]}  {traffic:6.2f}")


def arguments() -> argparse.Namespace:
    """Returns the options of the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--results",
        default=str(Path(__file__).parent.parent / "benchmarks/results"),
        help="folder of measured figures",
    )
    parser.add_argument(
        "--rate", type=float, default=40000.0, help="steps per second that are wanted"
    )
    parser.add_argument(
        "--step_us", type=float, default=500.0, help="an environment's own step, in us"
    )
    parser.add_argument(
        "--spread",
        type=float,
        default=0.5,
        help="standard deviation of step times, over their mean",
    )
    parser.add_argument(
        "--observation_bytes", type=int, default=28224, help="bytes of an observation"
    )
    parser.add_argument(
        "--envs_per_worker", type=int, default=8, help="environments of a worker"
    )
    parser.add_argument(
        "--cpus", type=int, default=16, help="CPUs of a machine, and so its workers"
    )
    parser.add_argument(
        "--policy_us", type=float, default=2000.0, help="what a batch takes the learner"
    )
    parser.add_argument(
        "--gbit", type=float, default=10.0, help="what the learner's network takes in"
    )
    parser.add_argument(
        "--latency_us", type=float, default=100.0, help="one way through the network"
    )
    parser.add_argument(
        "--fleets",
        type=int,
        nargs="*",
        default=[1_000, 10_000, 100_000],
        metavar="ENVS",
        help="how many environments fleets have; the largest take seconds",
    )
    return parser.parse_args()


def main() -> None:
    """Fits, compares, and plans."""
    options = arguments()
    measured = measurements(Path(options.results))
    costs = fit(measured)
    show_fit(measured, costs)
    links = link_costs(Path(options.results))
    show_links(links)
    show_plan(options, costs, links)
    show_fleets(options, costs, links)


if __name__ == "__main__":
    main()
