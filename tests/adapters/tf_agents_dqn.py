"""Envkit and the real TF-Agents: run by `test_tf_agents.py` where that is installed.

Each check prints the sentence that it has found to be true; at the end TF-Agents' DQN
has trained on envkit's CartPole.
"""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable

import numpy as np

import envkit
from envkit.adapters import from_tf_agents, to_tf_agents
from envkit.envs import CartPole
from envkit.testing import CountingEnv, NestedCountingEnv, check_environment
from envkit.tf import TFPyEnvironment

# pytest looks for examples in the docstrings of this file, too, without the library.
if __name__ == "__main__":
    import tensorflow as tf
    from tf_agents.agents.dqn import dqn_agent
    from tf_agents.drivers import dynamic_step_driver
    from tf_agents.environments import (
        batched_py_environment,
        py_environment,
        random_py_environment,
        tf_environment,
        tf_py_environment,
        wrappers,
    )
    from tf_agents.environments.utils import validate_py_environment
    from tf_agents.networks import q_network
    from tf_agents.policies import py_tf_eager_policy, random_tf_policy
    from tf_agents.replay_buffers import tf_uniform_replay_buffer
    from tf_agents.specs import array_spec, tensor_spec
    from tf_agents.train import actor
    from tf_agents.train.utils import spec_utils
    from tf_agents.trajectories import time_step as ts
    from tf_agents.utils import common

ROWS = 8
TRAIN_STEPS = 300


class Odd(envkit.PyEnvironment):
    """Has nests, a reward of two numbers and a discount of float64."""

    def observation_spec(self):
        return {
            "word": envkit.ArraySpec((), np.bool_, name="word"),
            "place": (envkit.BoundedArraySpec((2,), np.float64, [-1, -2], 1.0),),
        }

    def action_spec(self):
        return [envkit.BoundedArraySpec((1,), np.int16, -1, [3], name="move")]

    def reward_spec(self):
        return envkit.ArraySpec((2,), np.float64, name="both")

    def discount_spec(self):
        return envkit.BoundedArraySpec((), np.float64, 0.0, 0.9, name="less")

    def _time_step(self, step_type):
        self._left -= 1
        observation = {"word": np.array(True), "place": (np.zeros(2),)}
        # A number of Python's: whoever wants an array has to make one.
        return envkit.TimeStep(step_type, np.ones(2), 0.9, observation)

    def _reset(self):
        self._left = 4
        return self._time_step(envkit.StepType.FIRST)

    def _step(self, action):
        if self._left == 0:
            return self.reset()
        is_over = self._left == 1
        return self._time_step(envkit.StepType.LAST if is_over else envkit.StepType.MID)


class Ends(envkit.PyEnvironment):
    """Ends with the first step, and does not begin again by itself."""

    def observation_spec(self):
        return envkit.ArraySpec((), np.int32)

    def action_spec(self):
        return envkit.ArraySpec((), np.int32)

    def _reset(self):
        return envkit.restart(np.zeros((), np.int32))

    def _step(self, action):
        return envkit.termination(np.ones((), np.int32), reward=1.0)


class Counter:
    """Counts to five in every row, written in TensorFlow as envkit's environments."""

    batched = True
    batch_size = 2

    def __init__(self):
        self._count = tf.Variable(tf.zeros([2], tf.int32))

    def time_step_spec(self):
        return envkit.TimeStep(
            tf.TensorSpec([], tf.int32, "step_type"),
            tf.TensorSpec([], tf.float32, "reward"),
            tf.TensorSpec([], tf.float32, "discount"),
            tf.TensorSpec([], tf.int32),
        )

    def action_spec(self):
        return tensor_spec.BoundedTensorSpec([], tf.int32, 0, 1)

    def current_time_step(self):
        count = self._count.read_value()
        middle = tf.where(count == 5, 2, 1)
        return envkit.TimeStep(
            tf.where(count == 0, 0, middle), tf.ones([2]), tf.ones([2]), count
        )

    def reset(self):
        self._count.assign([0, 0])
        return self.current_time_step()

    def step(self, action):
        del action
        self._count.assign((self._count + 1) % 6)
        return self.current_time_step()


def same(first, second):
    """Says whether two nests have the same structure and equal arrays of one dtype."""
    tf.nest.assert_same_structure(first, second)
    pairs = zip(tf.nest.flatten(first), tf.nest.flatten(second), strict=True)
    return all(
        np.asarray(one).dtype == np.asarray(other).dtype and np.array_equal(one, other)
        for one, other in pairs
    )


def check_specs():
    """Specs are of TF-Agents' classes, with names, dtypes and bounds kept."""
    env = to_tf_agents(Odd())
    move = array_spec.BoundedArraySpec((1,), np.int16, -1, [3], "move")
    less = array_spec.BoundedArraySpec((), np.float64, 0.0, 0.9, "less")
    expected = ts.TimeStep(
        step_type=array_spec.ArraySpec((), np.int32, "step_type"),
        reward=array_spec.ArraySpec((2,), np.float64, "both"),
        discount=less,
        observation={
            "word": array_spec.ArraySpec((), np.bool_, "word"),
            "place": (array_spec.BoundedArraySpec((2,), np.float64, [-1, -2], 1.0),),
        },
    )
    spec = env.time_step_spec()
    tf.nest.assert_same_structure(expected, spec)
    assert isinstance(env, py_environment.PyEnvironment)
    assert type(spec) is ts.TimeStep
    assert tf.nest.flatten(expected) == tf.nest.flatten(spec)
    assert [type(leaf) for leaf in tf.nest.flatten(expected)] == [
        type(leaf) for leaf in tf.nest.flatten(spec)
    ]
    assert ["word", "place"] == list(env.observation_spec())
    assert [move] == env.action_spec()
    assert "move" == env.action_spec()[0].name
    assert (spec.reward, less) == (env.reward_spec(), env.discount_spec())


def check_validation():
    """TF-Agents' validation accepts single environments, batches and pools."""
    for env in (CartPole(), Odd(), NestedCountingEnv(), CartPole(batch_size=4)):
        validate_py_environment(to_tf_agents(env))
    pool = envkit.ParallelPyEnvironment(
        [CountingEnv] * 3, backend="inline", num_workers=1
    )
    with to_tf_agents(pool) as env:
        assert (True, 3, 1) == (env.batched, env.batch_size, env.num_workers)
        validate_py_environment(env)


def check_stream():
    """Time steps are of TF-Agents' class, and otherwise those of the environment."""
    ours, theirs = CartPole(batch_size=4), to_tf_agents(CartPole(batch_size=4))
    ours.seed(3)
    theirs.seed(3)
    rng = np.random.default_rng(0)
    pairs = [(ours.reset(), theirs.reset())]
    for _ in range(60):
        action = rng.integers(0, 2, 4)
        pairs.append((ours.step(action), theirs.step(action)))
    assert any(one.is_last().any() for one, _ in pairs)
    assert all(type(other) is ts.TimeStep for _, other in pairs)
    assert all(same(one, other) for one, other in pairs)
    assert pairs[-1][1] is theirs.current_time_step()
    odd = to_tf_agents(Odd()).reset()
    assert np.float64 == odd.discount.dtype
    assert (np.ndarray, np.int32) == (type(odd.step_type), odd.step_type.dtype)


def check_single():
    """A single environment need not begin its next episode itself."""
    for env in (to_tf_agents(Ends()), from_tf_agents(to_tf_agents(Ends()))):
        step_types = [int(env.step(0).step_type) for _ in range(5)]
        assert [0, 2, 0, 2, 0] == step_types


def check_state():
    """States bring back the environment and what TF-Agents knows of it."""
    env = to_tf_agents(CountingEnv(steps_per_episode=3))
    env.reset()
    env.step(0)
    token = env.get_state()
    expected = [env.step(0) for _ in range(5)]
    env.set_state(token)
    assert 1 == env.current_time_step().observation
    assert all(same(one, env.step(0)) for one in expected)
    assert ({}, (8, 8, 3)) == (env.get_info(), env.render().shape)


def check_views():
    """What the environment may write to later is copied."""
    maker = {"backend": "inline", "zero_copy": True}
    pool = envkit.ParallelPyEnvironment([CountingEnv] * 2, **maker)
    with to_tf_agents(pool) as env:
        first = env.reset()
        for _ in range(3):
            env.step([0, 0])
        assert [0, 0] == first.observation.tolist()


def check_stuck_rows():
    """A row that does not begin its next episode is refused."""

    class Stuck(envkit.PyEnvironment):
        batched = True
        batch_size = 2

        def observation_spec(self):
            return envkit.ArraySpec((), np.int32)

        def action_spec(self):
            return envkit.ArraySpec((), np.int32)

        def _reset(self):
            return envkit.restart(np.zeros(2, np.int32), batch_size=2)

        def _step(self, action):
            middle = envkit.transition(np.zeros(2, np.int32), np.zeros(2, np.float32))
            return middle._replace(step_type=np.array([1, 2], np.int32))

    env = to_tf_agents(Stuck())
    env.reset()
    env.step([0, 0])
    assert (
        "row 1 of Stuck ended with the last step, and this step did not begin a new "
        "episode there. A batch must do that row by row, in the step after a LAST."
    ) == message(NotImplementedError, lambda: env.step([0, 0]))


def message(error: type[Exception], call: Callable[[], object]) -> str:
    try:
        call()
    except error as caught:
        return str(caught)
    raise AssertionError(f"{error.__name__} was not raised")


def check_theirs():
    """What is TF-Agents' already comes back as it is."""
    env = to_tf_agents(CartPole())
    tf_env = tf_py_environment.TFPyEnvironment(env)
    assert to_tf_agents(env) is env
    assert to_tf_agents(tf_env) is tf_env
    assert "takes and returns tensors" in message(
        TypeError, lambda: from_tf_agents(tf_env)
    )


def random_env(**arguments):
    class RandomEnvironment(random_py_environment.RandomPyEnvironment):
        def render(self, mode="rgb_array"):
            # Its pictures come from the generator that observations come from.
            raise NotImplementedError

    return RandomEnvironment(
        {"eyes": array_spec.BoundedArraySpec((2,), np.float32, 0, 1)},
        array_spec.BoundedArraySpec((), np.int32, 0, 3),
        **arguments,
    )


def check_from_tf_agents():
    """Environments of TF-Agents keep envkit's contract: single, wrapped and batched."""
    makers = [
        random_env,
        lambda: wrappers.TimeLimit(random_env(), 3),
        lambda: batched_py_environment.BatchedPyEnvironment(
            [random_env(seed=seed) for seed in range(3)], multithreading=False
        ),
        lambda: to_tf_agents(CartPole()),
        lambda: to_tf_agents(CartPole(batch_size=3)),
    ]
    for maker in makers:
        check_environment(lambda maker=maker: from_tf_agents(maker()))


def check_round_trip():
    """There and back gives the same time steps."""
    ours = CartPole(batch_size=3)
    back = from_tf_agents(to_tf_agents(CartPole(batch_size=3)))
    ours.seed(5)
    back.seed(5)
    assert ours.environment_spec() == back.environment_spec()
    assert same(ours.reset(), back.reset())
    for _ in range(40):
        action = np.ones(3, np.int64)
        assert same(ours.step(action), back.step(action))


def check_seeds():
    """Each row of a batch of TF-Agents gets a seed of its own."""
    env = from_tf_agents(
        batched_py_environment.BatchedPyEnvironment([random_env(), random_env()])
    )
    with env:
        env.seed(3)
        one, other = env.reset().observation["eyes"]
    assert not np.array_equal(one, other)


def check_tf_py_environment():
    """TF-Agents' TFPyEnvironment steps a batch inside tf.while_loop."""
    env = tf_py_environment.TFPyEnvironment(to_tf_agents(CartPole(batch_size=ROWS)))

    @tf.function
    def play():
        env.reset()
        count = tf.zeros([ROWS])
        for _ in tf.range(30):
            count += env.step(tf.zeros([ROWS], tf.int64)).reward
        return count

    # It falls in about ten steps; the step that begins the next episode earns nothing.
    assert np.all(play() > 20)
    assert np.all(play() < 30)
    assert (ROWS, 4) == env.current_time_step().observation.shape


def check_tf_environment():
    """An environment in TensorFlow becomes one of TF-Agents, and its driver runs it."""
    env = to_tf_agents(Counter())
    assert isinstance(env, tf_environment.TFEnvironment)
    assert ts.TimeStep is type(env.time_step_spec()) is type(env.reset())
    assert ts.TimeStep is type(env.current_time_step())
    policy = random_tf_policy.RandomTFPolicy(env.time_step_spec(), env.action_spec())
    seen = []
    driver = dynamic_step_driver.DynamicStepDriver(
        env, policy, observers=[lambda item: seen.append(item)], num_steps=4
    )
    time_step, _ = driver.run(env.reset())
    assert ts.TimeStep is type(time_step)
    assert seen
    assert [2, 2] == time_step.observation.numpy().tolist()


def check_recognition():
    """Time steps of envkit are of TF-Agents' class, too, those made before included."""
    before = CountingEnv().reset()
    env = TFPyEnvironment(CountingEnv())
    spec = env.time_step_spec()
    assert envkit.TimeStep is type(spec)
    for time_step in (spec, before, env.reset(), pickle.loads(pickle.dumps(before))):
        assert isinstance(time_step, ts.TimeStep)
        assert isinstance(time_step, envkit.TimeStep)
    assert before.is_first()
    assert envkit.TimeStep.is_first is not ts.TimeStep.is_first
    random_tf_policy.RandomTFPolicy(spec, env.action_spec()).action(env.reset())


def check_actor():
    """An Actor collects from an environment that to_tf_agents has made."""
    env = to_tf_agents(CartPole())
    _, action_spec, time_step_spec = spec_utils.get_tensor_specs(env)
    policy = py_tf_eager_policy.PyTFEagerPolicy(
        random_tf_policy.RandomTFPolicy(time_step_spec, action_spec)
    )
    seen = []
    actor.Actor(
        env,
        policy,
        tf.Variable(0, dtype=tf.int64),
        steps_per_run=5,
        observers=[seen.append],
    ).run()
    assert 5 <= len(seen)


def check_dqn():
    """DqnAgent trains on envkit's CartPole: the loss is finite and weights change."""
    tf.random.set_seed(0)
    cartpoles = CartPole(batch_size=ROWS)
    cartpoles.seed(0)
    env = tf_py_environment.TFPyEnvironment(to_tf_agents(cartpoles))
    network = q_network.QNetwork(
        env.observation_spec(), env.action_spec(), fc_layer_params=(32,)
    )
    agent = dqn_agent.DqnAgent(
        env.time_step_spec(),
        env.action_spec(),
        q_network=network,
        optimizer=tf.keras.optimizers.Adam(1e-3),
        td_errors_loss_fn=common.element_wise_squared_loss,
    )
    agent.initialize()
    buffer = tf_uniform_replay_buffer.TFUniformReplayBuffer(
        agent.collect_data_spec, batch_size=ROWS, max_length=500
    )
    driver = dynamic_step_driver.DynamicStepDriver(
        env, agent.collect_policy, observers=[buffer.add_batch], num_steps=ROWS
    )
    run, train = common.function(driver.run), common.function(agent.train)
    time_step, policy_state = None, ()
    for _ in range(20):
        time_step, policy_state = run(time_step, policy_state)
    samples = iter(buffer.as_dataset(sample_batch_size=32, num_steps=2))
    before = [weight.numpy() for weight in network.trainable_weights]
    losses = []
    for _ in range(TRAIN_STEPS):
        time_step, policy_state = run(time_step, policy_state)
        experience, _ = next(samples)
        losses.append(float(train(experience).loss))
    after = [weight.numpy() for weight in network.trainable_weights]
    assert all(math.isfinite(loss) for loss in losses)
    assert all(not np.array_equal(*pair) for pair in zip(before, after, strict=True))
    print(f"{TRAIN_STEPS} steps, loss {losses[0]:.3f} to {losses[-1]:.3f}")


def main():
    for name, check in list(globals().items()):
        if name.startswith("check_") and check.__module__ == "__main__":
            check()
            print(f"checked: {check.__doc__}", flush=True)


if __name__ == "__main__":
    main()
