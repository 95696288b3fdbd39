"""`envkit describe`: an environment as a tree and a table, or as data."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from typing import ClassVar

import numpy as np
import pytest

import envkit
from envkit import (
    ArraySpec,
    AsyncParallelPyEnvironment,
    BatchedPyEnvironment,
    BoundedArraySpec,
    PyEnvironment,
    restart,
)
from envkit.cli.describe import leaf_text, limit_of, plain_leaves, short_text
from envkit.cli.main import main
from envkit.envs import CartPole
from envkit.testing import CountingEnv, NestedCountingEnv
from envkit.wrappers import TimeLimit

HERE = __name__


def described(capsys, *arguments):
    """Returns the answer in JSON."""
    status = main(["describe", *arguments, "--json"])
    printed = capsys.readouterr()
    assert (0, "") == (status, printed.err)
    return json.loads(printed.out)


def shown(capsys, *arguments):
    """Returns the lines for people."""
    assert 0 == main(["describe", *arguments])
    return capsys.readouterr().out.splitlines()


def test_specs_are_a_tree_and_the_rest_a_table(capsys):
    lines = shown(capsys, "CartPole", "--arg", "batch_size=5")

    assert [
        "CartPole-v1",
        "├── observation  float32 (4,) [-4.8, -∞, -0.418879, -∞]…[4.8, ∞, 0.418879, ∞]",
        "├── action  int64 0…1",
        "├── reward  float32",
        "├── discount  float32 0…1",
        "└── info",
        "    ├── episode_steps  int64 (5,)",
        "    ├── state  float64 (5, 4)",
        "    ├── terminated  bool (5,)",
        "    └── truncated  bool (5,)",
        "",
        "rows        5, autoreset next_step; reset(mask) and step(action, mask)",
        "episodes    at most 500 steps",
        "render      uint8 (5, 100, 240, 3)",
        "seed        yes",
        "state       yes",
        "version     1",
        "class       envkit.envs.cartpole:CartPole",
        "arguments   batch_size=5",
        "made of     CartPole",
    ] == lines[:20]
    assert lines[20].startswith(f"packages    envkit {envkit.__version__}, numpy ")


class Plain(PyEnvironment):
    """Has a nested action, and nothing that an environment may lack."""

    def observation_spec(self):
        return {"left": [ArraySpec((2,), np.float32), ArraySpec((), "<U3")], "none": ()}

    def action_spec(self):
        return BoundedArraySpec((2,), np.float32, [-1, -2], np.inf)

    def _reset(self):
        return restart({"left": [np.zeros(2, np.float32), np.array("abc")], "none": ()})

    def _step(self, action):
        return self._reset()


def test_missing_abilities_are_listed_with_the_reason(capsys):
    lines = shown(capsys, f"{HERE}:Plain")

    assert [
        f"{HERE}:Plain",
        "├── observation",
        "│   ├── left",
        "│   │   ├── 0  float32 (2,)",
        "│   │   └── 1  text of 3 characters",
        "│   └── none  nothing",
        "├── action  float32 (2,) [-1, -2]…∞",
        "├── reward  float32",
        "└── discount  float32 0…1",
        "",
        "rows       a single environment",
        "episodes   no known limit",
        "render     no: Plain cannot render: override render(mode), which returns a "
        'uint8 array of shape (height, width, 3) for "rgb_array".',
        "seed       no: Plain cannot be seeded: override seed(seed), or give _reset() "
        "an argument seed.",
        "state      no: Plain cannot save its state: override _get_state() and "
        "_set_state().",
        f"class      {HERE}:Plain",
        "made of    Plain",
    ] == lines[:17]


class Broken(CountingEnv):
    """Cannot even begin."""

    def _reset(self):
        raise OSError("no display")


def test_an_environment_that_cannot_reset_is_still_described(capsys):
    facts = described(capsys, f"{HERE}:Broken")
    assert {"possible": False, "reason": "OSError: no display"} == facts["reset"]
    assert "int32" == facts["specs"]["observation"][0]["dtype"]
    assert "reset      OSError: no display" in shown(capsys, f"{HERE}:Broken")


def test_json_has_the_arguments_and_the_origin(capsys):
    facts = described(capsys, "Catch", "--arg", "rows=5")

    assert ("Catch", {"rows": 5}) == (facts["target"], facts["arguments"])
    assert ("Catch-v1", 1) == (facts["id"], facts["version"])
    assert {"kind": "single", "rows": None} == facts["batch"]
    assert [
        {
            "path": "",
            "spec": "BoundedArraySpec",
            "shape": [],
            "dtype": "int64",
            "minimum": 0,
            "maximum": 2,
            "name": None,
        }
    ] == facts["specs"]["action"]
    assert {"rows": 5} == facts["provenance"]["arguments"]
    assert np.__version__ == facts["provenance"]["packages"]["numpy"]


def make_pool():
    return AsyncParallelPyEnvironment([CountingEnv] * 3, backend="inline")


def test_an_asynchronous_pool_is_described_without_being_played(capsys):
    assert {"kind": "asynchronous", "rows": 3} == described(
        capsys, f"{HERE}:make_pool"
    )["batch"]
    assert "rows        3, each stepped at its own speed" in shown(
        capsys, f"{HERE}:make_pool"
    )


def test_a_pool_is_described_as_a_batch(capsys):
    facts = described(capsys, "CartPole", "--num-envs=2", "--arg=backend=inline")
    assert {
        "kind": "batch",
        "rows": 2,
        "autoreset": "next_step",
        "resets_rows": True,
        "holds_rows": True,
    } == facts["batch"]
    assert 500 == facts["episode"]["max_steps"]


@pytest.mark.parametrize(
    ("make_env", "limit"),
    [
        (lambda: CartPole(max_episode_steps=7), 7),
        (lambda: CartPole(max_episode_steps=None), None),
        (lambda: TimeLimit(CartPole(), 9), 9),
        (lambda: TimeLimit(CartPole(max_episode_steps=7), 9), 7),
        (CountingEnv, None),
        (lambda: BatchedPyEnvironment([TimeLimit(CountingEnv(), 9)] * 1), 9),
    ],
)
def test_the_limit_of_an_episode_is_found_in_any_layer(make_env, limit):
    env = make_env()
    try:
        assert limit == limit_of(env)
    finally:
        env.close()


@pytest.mark.parametrize(
    ("target", "layers", "limit"),
    [
        (
            "gymnasium:Pendulum-v1",
            ["TimeLimit", "GymnasiumWrapper", "PendulumEnv"],
            200,
        ),
        pytest.param(
            "dm_control:cartpole/swingup",
            ["DmControlWrapper", "Environment"],
            1000,
            marks=pytest.mark.slow,
        ),
        ("minigrid:Empty-5x5", ["GymnasiumWrapper", "EmptyEnv"], 100),
    ],
)
def test_environments_of_other_libraries_show_their_classes(target, layers, limit):
    library = target.partition(":")[0]
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"{library} is not installed")
    # Not in this process: what draws for MuJoCo does not stand TensorFlow beside it.
    done = subprocess.run(
        [sys.executable, "-m", "envkit", "describe", target, "--json"],
        capture_output=True,
        text=True,
        encoding="utf-8",
    )
    assert 0 == done.returncode, done.stderr
    facts = json.loads(done.stdout)

    assert layers == facts["layers"]
    assert limit == facts["episode"]["max_steps"]


class Chancy(CountingEnv):
    """Calls its infos as its seed wants."""

    def seed(self, seed=None):
        self._name = f"lot{np.random.default_rng(seed).integers(10**9)}"
        return super().seed(seed)

    def get_info(self):
        return {self._name: 1}


def test_the_description_depends_on_the_seed(capsys):
    facts = [
        described(capsys, f"{HERE}:Chancy", *seed)
        for seed in ([], ["--seed=0"], ["--seed=7"], ["--seed=7"], ["--seed=8"])
    ]
    assert facts[0] == facts[1]
    assert facts[2] == facts[3]
    infos = [str(one["info"]) for one in facts]
    assert [infos[0], infos[0], infos[2], infos[2]] == infos[:4]
    assert 3 == len(set(infos))


def test_the_seed_is_shown(capsys):
    assert 7 == described(capsys, "Catch", "--seed=7")["provenance"]["seed"]


class Exits(CountingEnv):
    """Ends the program when it is rendered or seeded."""

    def seed(self, seed=None):
        sys.exit(3)

    def render(self, mode="rgb_array"):
        sys.exit()


def test_a_call_that_exits_counts_as_not_possible(capsys):
    facts = described(capsys, f"{HERE}:Exits")
    told = {"possible": False, "reason": "it called sys.exit(3)"}
    assert told == facts["seed"]
    assert "it called sys.exit()" == facts["render"]["reason"]


@pytest.mark.parametrize(
    ("target", "text"),
    [
        (
            "gymnasium",
            "'gymnasium' alone is not an environment: write 'gymnasium:NAME', with a "
            "name that `envkit list gymnasium:` shows.",
        ),
        (
            "vnc",
            "'vnc' alone is not an environment: write where its server is, such as "
            "'vnc://localhost:5900'.",
        ),
        (
            "./games/maze.py",
            "'./games/maze.py' names a file, and a target names a module: 'maze:NAME', "
            "where the file's folder is the current one or on sys.path.",
        ),
    ],
)
@pytest.mark.parametrize("command", ["describe", "check"])
def test_an_incomplete_target_gets_a_suggestion(command, target, text, capsys):
    assert 2 == main([command, target])
    assert f"envkit {command}: {text}\n" == capsys.readouterr().err


def make_talkative():
    print("Welcome!")
    return CountingEnv()


def test_output_of_environments_stays_out_of_the_answer(capsys):
    assert 0 == main(["describe", f"{HERE}:make_talkative", "--json"])
    printed = capsys.readouterr()
    assert "CountingEnv" in json.loads(printed.out)["class"]
    assert "Welcome!\n" == printed.err


def test_a_failing_constructor_is_one_line(capsys):
    assert 2 == main(["describe", "CartPol"])
    printed = capsys.readouterr()
    assert ("", 1) == (printed.out, len(printed.err.splitlines()))


class Spoken(CountingEnv):
    """Says what its actions are, in words."""

    def action_spec(self):
        return "left or right"


def test_an_invalid_spec_is_named(capsys):
    assert 2 == main(["describe", f"{HERE}:Spoken"])
    assert (
        "envkit describe: TypeError: Spoken.action_spec() returned 'left or right', "
        "not an ArraySpec. (--debug shows where)\n"
    ) == capsys.readouterr().err


@pytest.mark.parametrize(
    ("spec", "text", "bounds"),
    [
        (ArraySpec((2, 3), np.float64), "float64 (2, 3)", (None, None)),
        (BoundedArraySpec((), np.uint8), "uint8", (None, None)),
        (BoundedArraySpec((), np.int8, 0), "int8 0…127", (0, 127)),
        (BoundedArraySpec((), np.float32, 0.7), "float32 0.7…∞", (0.7, None)),
        (
            BoundedArraySpec((2,), np.float32, maximum=[0.1, 3]),
            "float32 (2,) -∞…[0.1, 3]",
            (None, [0.1, 3.0]),
        ),
        (
            BoundedArraySpec((6,), np.int64, 0, range(6)),
            "int64 (6,) 0…[0 to 5]",
            (0, [0, 1, 2, 3, 4, 5]),
        ),
        (
            BoundedArraySpec((), np.uint64, 0, 2**64 - 2),
            "uint64 0…18446744073709551614",
            (0, 2**64 - 2),
        ),
        (ArraySpec((), "S4"), "text of 4 bytes", (None, None)),
        (ArraySpec((3,), bool), "bool (3,)", (None, None)),
    ],
)
def test_a_spec_is_written_in_short_and_as_plain_data(spec, text, bounds):
    (leaf,) = plain_leaves(spec)
    assert (text, bounds) == (leaf_text(spec), (leaf["minimum"], leaf["maximum"]))
    json.dumps(leaf, allow_nan=False)


def test_a_long_nest_is_cut_short():
    specs = {f"part{number}": ArraySpec((), np.int8) for number in range(6)}
    assert (
        "part0: int8, part1: int8, part2: int8, part3: int8 and 2 more"
    ) == short_text(specs)
    assert "nothing" == short_text({})
    assert short_text(NestedCountingEnv().observation_spec())


def limited():
    return TimeLimit(CartPole(), 9)


def test_an_environment_is_named_by_its_id(capsys):
    assert 0 == main(["describe", f"{HERE}:limited"])
    rows = capsys.readouterr().out.splitlines()
    assert "class      envkit.envs.cartpole:CartPole" in rows
    assert "made of    TimeLimit around CartPole" in rows


def test_a_pool_has_the_name_of_its_environments(capsys):
    pool = ["--arg", "num_envs=2", "--arg", "backend=inline"]
    assert 0 == main(["describe", "Catch-v1", *pool])
    assert "Catch-v1" == capsys.readouterr().out.splitlines()[0]


class Drawn(CountingEnv):
    """Renders if it was made to."""

    metadata: ClassVar = {"render_modes": ["rgb_array"]}

    def __init__(self, render_mode=None):
        super().__init__()
        self.render_mode = render_mode

    def render(self, mode="rgb_array"):
        if self.render_mode is None:
            raise NotImplementedError("It needs render_mode.")
        return np.zeros((2, 3, 3), np.uint8)


def drawn():
    return Drawn()


@pytest.mark.parametrize(
    ("target", "text"),
    [
        ("Drawn", "uint8 (2, 3, 3), made with render_mode='rgb_array'"),
        ("drawn", "no: It needs render_mode."),
    ],
)
def test_a_missing_render_mode_is_reported_only_if_it_cannot_be_set(
    target, text, capsys
):
    assert 0 == main(["describe", f"{HERE}:{target}"])
    rows = capsys.readouterr().out.splitlines()
    assert [f"render     {text}"] == [row for row in rows if row.startswith("render")]
