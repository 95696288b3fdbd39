"""How much an agent loses by thinking: Catch goes on in the meantime.

    pip install matplotlib

The ball falls 20 times a second, whether or not the agent has decided; until then its
last action goes on. The clock is virtual: time is counted and nobody waits for it, so
hundreds of episodes take a second, with the same result on every machine. Take
`host="process"` and leave out `think_time`, and the same program runs in real time.
"""

import numpy as np

from envkit.envs import Catch
from envkit.realtime import RealTimeEnvironment

HZ = 20.0
THINK_TIMES = [0.0, 0.025, 0.05, 0.075, 0.1, 0.15]  # seconds
EPISODES = 100
LEFT, STAY, RIGHT = range(3)


def follow(board):
    """Moves the paddle towards the ball, which is perfect for an agent with time."""
    paddle = int(board[-1].argmax())
    ball = int(board[:-1].max(axis=0).argmax())
    return STAY if ball == paddle else RIGHT if ball > paddle else LEFT


def mean_return(think_time):
    returns = []
    game = Catch(seed=0, rows=20, columns=9)
    with RealTimeEnvironment(game, HZ, host="virtual", think_time=think_time) as env:
        time_step = env.reset()
        while len(returns) < EPISODES:
            time_step = env.step(follow(time_step.observation))
            if time_step.is_last():
                returns.append(float(time_step.reward))
    return np.mean(returns)


means = [mean_return(think_time) for think_time in THINK_TIMES]

try:
    import matplotlib.pyplot as plt

    plt.plot(1000 * np.array(THINK_TIMES), means, marker="o")
    plt.xlabel("think time (ms)")
    plt.ylabel(f"mean return of {EPISODES} episodes")
    plt.savefig("realtime_catch.png")
    print("picture: realtime_catch.png")
except ImportError:
    print('There is no picture without Matplotlib: pip install "matplotlib>=3.9"')
for think_time, mean in zip(THINK_TIMES, means, strict=True):
    print(f"{1000 * think_time:3.0f} ms of thinking: mean return {mean:+.2f}")
