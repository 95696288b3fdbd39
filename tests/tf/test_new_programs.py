"""What only a program that begins anew can show; TensorFlow takes seconds to load."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys

import pytest
import tensorflow as tf

pytestmark = pytest.mark.slow

# The first call comes from inside a function. Later TF-Agents is imported, as far as
# envkit depends on that.
PROGRAM = """
import pickle, sys, types
from typing import Any, NamedTuple

import tensorflow as tf

import envkit

@tf.function
def first(tensor):
    return envkit.transition({'a': (tensor,)}, {'b': tensor}, 0.5)

first(tf.ones([2]))

from envkit.testing import CountingEnv
from envkit.tf import TFPyEnvironment, tensor_spec


class Base(NamedTuple):
    step_type: Any
    reward: Any
    discount: Any
    observation: Any


class TimeStep(Base):
    __slots__ = ()

    def is_last(self):
        raise AssertionError("The method of envkit's class has to be called.")


class Other(NamedTuple):
    step_type: Any


theirs = types.ModuleType("tf_agents.trajectories.time_step")
before = CountingEnv().reset()
env = TFPyEnvironment(CountingEnv())
makers = [
    env.time_step_spec,
    lambda: tensor_spec.from_spec(CountingEnv().time_step_spec()),
    lambda: envkit.time_step_spec(tf.TensorSpec([], tf.int32)),
]

# Neither before its import, nor while that is under way, nor if the class differs.
for step in ("missing", "half made", "another"):
    assert type(makers[0]()) is envkit.TimeStep
    assert (tuple,) == envkit.TimeStep.__bases__, step
    sys.modules[theirs.__name__] = theirs
    if step == "half made":
        theirs.TimeStep = Other

theirs.TimeStep = TimeStep
for make in makers:
    envkit.TimeStep.__bases__ = (tuple,)
    spec = make()
    assert type(spec) is envkit.TimeStep
    assert isinstance(spec, TimeStep)
for time_step in (before, env.reset(), pickle.loads(pickle.dumps(before))):
    assert isinstance(time_step, TimeStep)
    assert not time_step.is_last()
    assert 4 == len(time_step._replace(reward=1.0))
env.step([1])
tf.nest.assert_same_structure(spec, TimeStep(*spec))
print("derived")
"""
STREAM = """
import tensorflow as tf; from envkit.tf import tensor_spec as t
def draw(): return t.sample_spec_nest([tf.TensorSpec([], "int64")] * 2, 7)
for call in (draw, draw, f := tf.function(draw), f):
    print([int(leaf) for leaf in call()])
"""


@pytest.fixture(scope="module")
def printed(tmp_path_factory):
    # A file, because AutoGraph complains about any function without source code.
    path = tmp_path_factory.mktemp("program") / "program.py"
    path.write_text(PROGRAM + "tf.random.set_seed(None)\n" + STREAM, "utf-8")
    paths = os.pathsep.join(filter(None, sys.path))
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", str(path)],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONPATH": paths},
    )
    assert "autograph" not in ran.stderr.lower()
    assert 0 == ran.returncode, ran.stderr
    return ran.stdout.splitlines()


def test_a_program_may_trace_before_it_imports_tf_agents(printed):
    assert "derived" == printed[0]


def test_streams_are_equal_in_every_run_of_a_program(printed):
    tf.random.set_seed(None)
    with contextlib.redirect_stdout(io.StringIO()) as here:
        exec(STREAM, {})

    # A traced function begins the stream anew.
    assert printed[1:] == here.getvalue().splitlines() == printed[1:3] * 2
    assert printed[1] != printed[2]
