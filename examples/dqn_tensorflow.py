"""DQN in TensorFlow walks to a goal: a batch of GridWorlds, seen as pictures.

    pip install tensorflow matplotlib

The algorithm is that of Mnih et al. (2015), with the double estimate of van Hasselt et
al. (2016). Its target is `reward + DISCOUNT * discount * value of the next state`. The
environment's discount is 0 at the goal, where nothing follows, and 1 where an episode
is only cut off, here after 100 steps; so the target needs no `done`, and is right for
both.
"""

import os

import numpy as np

import envkit
from envkit.wrappers import LogEpisodes

# Without these, TensorFlow writes more notices about the machine.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
from envkit.tf import dataset

import keras
import tensorflow as tf

STEPS = 25_600  # of all environments together
NUM_ENVS = 32
NEW, UPDATES, MINIBATCH = 64, 8, 128  # 8 updates after every 64 new transitions
DISCOUNT, FOLLOW, LEARNING_RATE = 0.9, 0.02, 1e-3
SIZE = 5
SEED = 0

keras.utils.set_random_seed(SEED)
rng = np.random.default_rng(SEED)


def network():
    return keras.Sequential(
        [
            keras.Input((SIZE, SIZE, 3)),
            keras.layers.Rescaling(1 / 255),
            keras.layers.Flatten(),
            keras.layers.Dense(128, "relu"),
            keras.layers.Dense(128, "relu"),
            keras.layers.Dense(4),
        ]
    )


# The second network follows the first one slowly, so that targets do not run away.
online, target = network(), network()
target.set_weights(online.get_weights())
schedule = keras.optimizers.schedules.PolynomialDecay(
    LEARNING_RATE, STEPS // NEW * UPDATES, 1e-5
)
optimizer = keras.optimizers.Adam(schedule)
exploration = tf.Variable(1.0)


def policy(time_step):
    """Acts greedily or, as often as `exploration` says, at random."""
    greedy = tf.argmax(online(time_step.observation), axis=1)
    anything = tf.random.uniform([NUM_ENVS], maxval=4, dtype=tf.int64)
    return tf.where(tf.random.uniform([NUM_ENVS]) < exploration, anything, greedy)


@tf.function
def learn(observations, actions, rewards, discounts, following):
    for i in tf.range(UPDATES):
        best = tf.argmax(online(following[i]), axis=1)
        value = tf.gather(target(following[i]), best, batch_dims=1)
        goal = rewards[i] + DISCOUNT * discounts[i] * value
        with tf.GradientTape() as tape:
            chosen = tf.gather(online(observations[i]), actions[i], batch_dims=1)
            loss = tf.reduce_mean(keras.losses.huber(goal[:, None], chosen[:, None]))
        weights = online.trainable_variables
        optimizer.apply_gradients(
            zip(tape.gradient(loss, weights), weights, strict=True)
        )
        for slow, fast in zip(target.variables, online.variables, strict=True):
            slow.assign_add(FOLLOW * (fast - slow))


memory = [
    np.zeros((STEPS, *shape), dtype)
    for shape, dtype in [
        ((SIZE, SIZE, 3), np.uint8),  # the observation
        ((), np.int64),  # the action
        ((), np.float32),  # the reward
        ((), np.float32),  # the discount
        ((SIZE, SIZE, 3), np.uint8),  # the next observation
    ]
]
worlds = envkit.make("GridWorld", size=SIZE, batch_size=NUM_ENVS, seed=SEED)
env = LogEpisodes(worlds, "runs/dqn_tensorflow", overwrite=True)
# Without prefetching, the newest weights choose every action.
transitions = dataset(env, policy, prefetch=0).batch(NEW).take(STEPS // NEW)
steps = 0
for new in transitions.as_numpy_iterator():
    rows = slice(steps, steps + NEW)
    steps += NEW
    after = new.next_time_step
    parts = new.time_step.observation, new.action, after.reward, after.discount
    for kept, part in zip(memory, (*parts, after.observation), strict=True):
        kept[rows] = part
    exploration.assign(max(0.05, 1.0 - steps / (STEPS / 2)))
    if steps >= 1_000:
        chosen = rng.integers(steps, size=(UPDATES, MINIBATCH))
        learn(*(kept[chosen] for kept in memory))

# The test: one episode of each of 100 new environments, without exploration.
test = envkit.make("GridWorld", size=SIZE, batch_size=100, seed=SEED + 1)
lengths, playing = np.zeros(100), np.ones(100, bool)
time_step = test.reset()
while playing.any():
    time_step = test.step(online(time_step.observation).numpy().argmax(axis=1))
    lengths += playing
    playing &= ~time_step.is_last()

try:
    envkit.plot("runs/dqn_tensorflow", y="length").savefig("dqn_tensorflow.png")
    print("learning curve: dqn_tensorflow.png")
except ImportError as error:  # Matplotlib is only for the picture.
    print(error)
print(f"steps to the goal in 100 test episodes: {lengths.mean():.1f} on average")
