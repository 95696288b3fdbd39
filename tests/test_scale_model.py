"""The model of what steps cost finds costs again, and agrees with its simulation."""

from __future__ import annotations

import functools
import importlib.util
import json
import subprocess
import sys
from dataclasses import astuple, replace
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parent.parent


@functools.cache
def model():
    """Imports the example, which no package holds."""
    path = ROOT / "examples/scale_model.py"
    spec = importlib.util.spec_from_file_location("scale_model", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["scale_model"] = module  # where dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def costs():
    return model().Costs(6.0, 30.0, 0.5, 0.05, 0.06)


def loads():
    Load = model().Load
    return [
        Load(1, 1, 2, 0.0),
        Load(64, 2, 2, 10.0),
        Load(64, 4, 2, 10.0, size=4000),
        Load(64, 2, 8, 1.0, size=28_224),
        Load(64, 2, 8, 1.0, size=28_224, copies=False),
        Load(16, 16, 2, 1000.0, waits=True),
    ]


def test_the_fit_finds_the_costs_that_figures_were_made_of():
    measured = [
        model().Measured(str(load), load, model().predict(load, costs()))
        for load in loads()
    ]
    found = model().fit(measured)
    np.testing.assert_allclose(astuple(found), astuple(costs()), rtol=1e-6)


def test_no_cost_is_below_nothing():
    free = replace(costs(), kilobyte_copied=-0.2)
    measured = [
        model().Measured(str(load), load, model().predict(load, free))
        for load in loads()
    ]
    found = model().fit(measured)
    assert min(astuple(found)) >= 0.0


@pytest.mark.parametrize("number", range(6))
def test_with_equal_steps_the_simulation_says_what_the_formula_says(number):
    load = loads()[number]
    rate, _ = model().simulate(load, costs())
    expected = load.envs * 1e6 / model().predict(load, costs())
    assert rate == pytest.approx(expected, rel=0.02)


def test_where_steps_differ_it_is_quicker_not_to_wait_for_the_last():
    load = model().Load(64, 16, 16, 500.0, spread=1.0)
    lockstep, _ = model().simulate(load, costs())
    halves, _ = model().simulate(load, costs(), share=0.5)
    assert halves > lockstep


def test_no_more_than_the_network_holds_arrives():
    load = model().Load(64, 16, 16, 100.0, size=100_000, machines=8)
    rate, _ = model().simulate(load, costs(), gbit=1.0)
    assert rate * load.size * 8 <= 1e9


def test_a_learner_that_thinks_all_the_time_is_busy_all_the_time():
    load = model().Load(8, 8, 16, 10.0, policy=1e5)
    rate, busy = model().simulate(load, costs())
    assert 0.99 < busy <= 1.0
    assert rate < 8 * 10


def test_curves_are_read_too(tmp_path):
    curve = {
        "axis": "workers",
        "unit": "steps per second",
        "points": [1, 4],
        "figures": {
            "ideal": [[10_000.0], [20_000.0]],
            "envkit": [[8_000.0], [16_000.0]],
        },
    }
    title = "64 environments that compute 100 us"
    result = {"machine": {"cpus": 2}, "curves": {title: curve}}
    (tmp_path / "scaling.json").write_text(json.dumps(result))

    one, four = model().measurements(tmp_path)

    assert (64, 1, 100.0) == (one.load.envs, one.load.workers, one.load.step)
    assert (64, 4, 100.0) == (four.load.envs, four.load.workers, four.load.step)
    assert [8_000.0, 4_000.0] == [one.time, four.time]


def test_the_example_prints_how_far_it_is_off_and_a_plan():
    finished = subprocess.run(
        [sys.executable, "examples/scale_model.py", "--rate=1000", "--fleets", "1000"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    assert "measured  predicted   off" in finished.stdout
    assert "Half of the predictions are off by less than" in finished.stdout
    assert "The wanted rate is reached with this machine" in finished.stdout
    fleets = finished.stdout.partition("reached  Gbit/s\n")[2].splitlines()
    assert ["1,000"] * 3 == [line.split()[0] for line in fleets]
