"""Learns with PPO in PyTorch: CartPole in well under a minute, or a game of Atari.

    pip install -e ".[torch,plot,atari]"
    python examples/torch_ppo.py
    python examples/torch_ppo.py --env=ale:Pong --rate=2.5e-4 --steps=10000000 --goal=20

The method is that of Schulman et al. (2017). `RolloutBuffer` does what is easily done
wrong: a truncated episode is followed by the value of its last observation, and nothing
is learned of the step from the end of an episode to the next beginning.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import envkit
from envkit.extend import install_command

try:
    import torch
    from matplotlib.figure import Figure
    from torch import nn
    from torch.distributions import Categorical
except ModuleNotFoundError as error:
    sys.exit(
        f"This example needs the package {error.name}, which is not installed. "
        f"{install_command('torch', 'plot', package=error.name or '')}"
    )

from envkit.torch import RolloutBuffer, TorchEnvironment, Transitions

parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
parser.add_argument("--env", default="CartPole", help="CartPole, or ale: and a game")
parser.add_argument("--rows", type=int, default=16, help="environments")
parser.add_argument("--rollout", type=int, default=128, help="steps between updates")
parser.add_argument("--steps", type=int, default=500_000, help="when to stop anyway")
parser.add_argument("--goal", type=float, default=475.0, help="mean return to stop at")
parser.add_argument("--rate", type=float, default=2e-3, help="learning rate at first")
parser.add_argument("--device", default="cpu", help="such as cuda")
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--output_dir", type=Path, default=Path("demo_output"))

EPOCHS, MINIBATCH, DISCOUNT, LAM, CLIP = 6, 256, 0.99, 0.95, 0.2


def layer(module: Any, gain: float = 2**0.5) -> nn.Module:
    """Begins with weights that keep the size of what goes through."""
    nn.init.orthogonal_(module.weight, gain)
    nn.init.zeros_(module.bias)
    return module


class Agent(nn.Module):
    """A policy and a value, over four pictures of 84 by 84 or over plain numbers."""

    def __init__(self, observation: envkit.ArraySpec, actions: int) -> None:
        super().__init__()
        if observation.shape == (4, 84, 84):
            eye = [layer(nn.Conv2d(4, 32, 8, 4)), nn.ReLU()]
            eye += [layer(nn.Conv2d(32, 64, 4, 2)), nn.ReLU()]
            eye += [layer(nn.Conv2d(64, 64, 3, 1)), nn.ReLU(), nn.Flatten()]
            self.body = nn.Sequential(*eye, layer(nn.Linear(3136, 512)), nn.ReLU())
            self.policy = layer(nn.Linear(512, actions), 0.01)
            self.value, self.scale = layer(nn.Linear(512, 1), 1.0), 1 / 255
        else:
            self.body, self.scale = nn.Flatten(), 1.0
            self.policy, self.value = (
                nn.Sequential(
                    *[layer(nn.Linear(int(np.prod(observation.shape)), 64)), nn.Tanh()],
                    *[layer(nn.Linear(64, 64)), nn.Tanh()],
                    layer(nn.Linear(64, outputs), gain),
                )
                for outputs, gain in ((actions, 0.01), (1, 1.0))
            )

    def forward(self, observation: torch.Tensor) -> tuple[Categorical, torch.Tensor]:
        features = self.body(observation.float() * self.scale)
        return Categorical(logits=self.policy(features)), self.value(features)[:, 0]

    def act(self, time_step: envkit.TimeStep) -> tuple[torch.Tensor, dict[str, Any]]:
        """Returns actions, and what is to be kept beside them."""
        choice, value = self(time_step.observation)
        action = choice.sample()
        return action, {"value": value, "log_prob": choice.log_prob(action)}

    def loss(self, batch: Transitions) -> torch.Tensor:
        choice, value = self(batch.observation)
        ratio = (choice.log_prob(batch.action) - batch.extras["log_prob"]).exp()
        surprise = batch.advantages - batch.advantages.mean()
        surprise = surprise / (batch.advantages.std() + 1e-8)
        clipped = ratio.clamp(1 - CLIP, 1 + CLIP)
        gain = torch.min(ratio * surprise, clipped * surprise).mean()
        error = (value - batch.returns).pow(2).mean()
        return 0.5 * error - gain - 0.01 * choice.entropy().mean()


def train(env: TorchEnvironment, args: argparse.Namespace) -> list[tuple[int, float]]:
    """Learns until the goal is reached; returns steps and mean returns."""
    agent = Agent(env.observation_spec(), int(env.action_spec().maximum) + 1)
    agent.to(args.device)
    optimizer = torch.optim.Adam(agent.parameters(), lr=args.rate, eps=1e-5)
    buffer = RolloutBuffer(env, args.rollout)
    running, returns, curve, steps = np.zeros(args.rows), [], [(0, -np.inf)], 0
    while steps < args.steps and (len(returns) < 100 or curve[-1][1] < args.goal):
        for shown in buffer.collect(env, agent.act):
            running += shown.reward.cpu().numpy()
            ended = shown.is_last().cpu().numpy()
            returns += running[ended].tolist()
            running[ended] = 0.0
        transitions = buffer.transitions(DISCOUNT, LAM)
        optimizer.param_groups[0]["lr"] = args.rate * (1 - steps / args.steps)
        for batch in transitions.minibatches(MINIBATCH, EPOCHS):
            optimizer.zero_grad()
            agent.loss(batch).backward()
            nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
            optimizer.step()
        steps += args.rows * args.rollout
        curve.append((steps, float(np.mean(returns[-100:])) if returns else -np.inf))
    return curve


def draw(curve: list[tuple[int, float]], name: str, path: Path) -> None:
    """Saves a picture of how the returns grew."""
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    axes.plot(*zip(*curve[1:], strict=True), label="mean of the last 100 episodes")
    axes.set(xlabel="steps of all environments", ylabel="return", title=f"PPO, {name}")
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.legend(loc="lower right")
    figure.savefig(path, dpi=120)


def main() -> None:
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    if args.env.startswith("ale:"):  # ale-py's own batch, with what DQN made of games
        made = envkit.make(args.env, num_envs=args.rows, vectorization="native")
    else:
        torch.set_num_threads(1)  # such small networks are slower on several
        made = envkit.make(args.env, batch_size=args.rows)
    with TorchEnvironment(made, args.device) as env:
        env.seed(args.seed)
        began = time.perf_counter()
        curve = train(env, args)
    steps, mean = curve[-1]
    print(f"{steps:,} steps in {time.perf_counter() - began:.1f} s, learning included")
    print(f"mean return of the last 100 episodes: {mean:.1f}")
    if mean < args.goal:
        print(f"The goal of {args.goal:g} was not reached: raise --steps.")
    args.output_dir.mkdir(parents=True, exist_ok=True)
    draw(curve, args.env, args.output_dir / "torch_ppo.png")
    print(f"learning curve: {args.output_dir / 'torch_ppo.png'}")


if __name__ == "__main__":
    main()
