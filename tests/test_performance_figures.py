"""`make bench` writes the results into RESULTS.md and the pages that quote them."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).parent.parent / "tools/performance_figures.py"
TABLE = "one step of 64 environments, 2 workers"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Two runs of one benchmark, and a page for both."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(TOOL.parent)
    for name, time in (("here", 100.0), ("elsewhere", 200.0)):
        result = {
            "benchmark": "parallel_step",
            "command": "python benchmarks/parallel_step.py",
            "arguments": ["--rounds=3"],
            "date": "2026-03-01",
            "machine": {
                "cpus": 2,
                "system": "Linux-6",
                "python": "3.11.7",
                "packages": {"numpy": "2.4.6"},
            },
            "tables": {
                TABLE: {"unit": "us", "figures": {"envkit": [time], "ideal": [50.0]}}
            },
            "curves": {
                "growth": {
                    "axis": "workers",
                    "unit": "steps per second",
                    "points": [0, 2],
                    "figures": {"envkit": [[10.0], [20.0]], "ideal": [[30.0], [60.0]]},
                }
            },
            "ratios": [
                {
                    "claim": "as fast as a loop",
                    "ratio": 1.5,
                    "middle_half": [1.0, 2.0],
                    "at_least": 2.0,
                    "at_most": None,
                    "reached": False,
                }
            ],
            "facts": {},
        }
        (tmp_path / f"{name}.json").write_text(json.dumps(result))
    (tmp_path / "docs").mkdir()
    return tmp_path


def written(folder, page, text):
    (folder / page).write_text(text)
    # As `python tools/performance_figures.py` does, but Matplotlib is imported once.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", [str(TOOL), ".", page])
        runpy.run_path(str(TOOL), run_name="__main__")
    return (folder / page).read_text()


def results_of(folder):
    (folder / "benchmarks").mkdir()
    return written(folder, "benchmarks/RESULTS.md", "old")


def test_each_result_has_its_own_pictures(folder):
    text = results_of(folder)

    assert "old" not in text
    assert "(../docs/pictures/here.svg)" in text
    assert "(../docs/pictures/elsewhere_1.svg)" in text
    assert "| as fast as a loop | 1.5 | 1 … 2 |" in text
    here, elsewhere = (
        (folder / f"docs/pictures/{name}.svg").read_text()
        for name in ("here", "elsewhere")
    )
    assert here != elsewhere


def test_a_page_quotes_one_table(folder):
    text = written(
        folder,
        "docs/page.md",
        f"<!-- table: here: {TABLE} -->\nold\n<!-- end of figures -->\n",
    )
    assert (
        f"<!-- table: here: {TABLE} -->\n\n"
        f"| {TABLE} | median us |\n"
        "| :--- | ---: |\n"
        "| envkit | 100 |\n"
        "| ideal | 50 |\n\n"
        "`python benchmarks/parallel_step.py --rounds=3` on 1 March 2026: 2 CPUs, "
        "Linux, Python 3.11.7, numpy 2.4.6.\n\n"
        "<!-- end of figures -->\n"
    ) == text


def test_a_quoted_table_without_measurements_is_kept(folder):
    page = "<!-- table: there: a step -->\nold\n<!-- end of figures -->\n"
    assert page == written(folder, "docs/page.md", page)


def test_each_result_comes_with_the_docstring_of_its_benchmark(folder):
    (folder / "here.json").rename(folder / "parallel_step.json")
    text = results_of(folder)
    assert "### parallel_step\n\nHow long a batch" in text
    assert "    python benchmarks/parallel_step.py" not in text


def test_missing_measurements_are_named_below_their_table(folder):
    result = json.loads((folder / "here.json").read_text())
    result["tables"][TABLE]["figures"] |= {"Slow": [], "Slower, 2 workers": []}
    (folder / "here.json").write_text(json.dumps(result))
    text = results_of(folder)
    assert (
        "| ideal | 50 | 50 |\n\nNot measured here: Slow; Slower, 2 workers.\n" in text
    )


def test_the_picture_of_the_readme_has_two_environments(folder):
    """TF-Agents runs apart, so its bar follows from its ratio there."""
    result = json.loads((folder / "here.json").read_text())
    loop, envpool = "a loop over Gymnasium's", "EnvPool (its own, in C++)"

    def write(name, title, figures, ending, **ratios):
        result["tables"] = {title: {"unit": "us", "figures": figures}}
        result["ratios"] = [
            {"claim": f"as fast as {name}{ending}", "ratio": ratio}
            for name, ratio in ratios.items()
        ]
        (folder / f"{name}.json").write_text(json.dumps(result))

    cheap = {"envkit": [200.0], loop: [384.0], envpool: [100.0]}
    write("parallel_step", TABLE, cheap, "", **{loop: 1.92, envpool: 0.5})
    title = "one step of 16 of Pong-v5, 2 workers"
    dear = {"envkit": [4000.0], loop: [8000.0], envpool: []}
    ratios = {loop: 2.0, envpool: None}
    write("games", title, dear, ", 16 of Pong-v5", **ratios)
    apart = "TF-Agents ParallelPyEnvironment"
    write("tf_agents", TABLE, cheap, "", **{apart: 20.0})

    text = written(
        folder, "README.md", "<!-- picture: speed -->\n<!-- end of figures -->\n"
    )
    assert (
        "Steps per second of 64 of Gymnasium's CartPole-v1, 6 us a step, and of 16 of "
        "Atari's Pong-v5, 500 us a step](docs/pictures/speed.svg)" in text
    )
    assert f"| {loop} | 1.92 | 2 |\n| {envpool} | 0.5 |  |\n| {apart} | 20 |  |" in text
    assert f"Empty is what was not measured: {envpool}.\n" in text
    picture = (folder / "docs/pictures/speed.svg").read_text()
    for speed in ("320,000", "640,000", "16,000", "4,000", "2,000"):
        assert f"<!-- {speed} -->" in picture


def test_the_soak_results_list_trials_and_outcomes(folder):
    result = {
        "steps": 1_000_000,
        "restarts": 234,
        "wrong transitions": 0,
        "leaked things": 0,
        "seconds": 120.5,
        "troubles": {"forks": {"tried": 1060, "held": 1059, "checked": "it ended"}},
    }
    (folder / "soak.json").write_text(json.dumps(result))
    text = results_of(folder)
    assert "| :--- | ---: | ---: | :--- |\n| forks | 1,060 | 1,059 | it ended |" in text
    assert "| 1,000,000 | 234 | 0 | 0 | 120.5 |" in text


def test_the_replay_soak_results_list_each_pool(folder):
    facts = {"steps": 500, "kills": 4, "recovered": 16, "fell back": 0}
    facts["streams that differ"] = 0
    result = {**facts, "seconds": 3.5, "pools": {"links": facts}}
    (folder / "soak_replay.json").write_text(json.dumps(result))
    text = results_of(folder)
    assert "| links | 500 | 4 | 16 | 0 | 0 |\n| all | 500 | 4 | 16 | 0 | 0 |" in text
