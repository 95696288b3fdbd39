"""PPO in PyTorch balances a pole: 16 of Gymnasium's CartPoles in worker processes.

    pip install "gymnasium>=1.0" torch matplotlib

The algorithm is that of Schulman et al. (2017). `RolloutBuffer` handles the two cases
that are easy to get wrong: after a truncation, here at 500 steps, the return continues
with the value of the last observation; and the step from the end of an episode to the
next beginning is in no minibatch.
"""

import envkit
from envkit.torch import RolloutBuffer, TorchEnvironment
from envkit.wrappers import LogEpisodes

import torch
from torch import nn
from torch.distributions import Categorical

STEPS = 150_000  # of all environments together
NUM_ENVS, ROLLOUT = 16, 128
EPOCHS, MINIBATCH = 6, 256
DISCOUNT, LAM, CLIP = 0.99, 0.95, 0.2
LEARNING_RATE = 2e-3
SEED = 0

torch.manual_seed(SEED)
torch.set_num_threads(1)  # networks this small are slower on several threads


def network(outputs, last_gain):
    layers = [nn.Linear(4, 64), nn.Linear(64, 64), nn.Linear(64, outputs)]
    for layer, gain in zip(layers, (2**0.5, 2**0.5, last_gain), strict=True):
        nn.init.orthogonal_(layer.weight, gain)
        nn.init.zeros_(layer.bias)
    return nn.Sequential(layers[0], nn.Tanh(), layers[1], nn.Tanh(), layers[2])


# A small last layer: at first, both actions are about equally likely.
actor, critic = network(2, last_gain=0.01), network(1, last_gain=1.0)
parameters = [*actor.parameters(), *critic.parameters()]
optimizer = torch.optim.Adam(parameters, lr=LEARNING_RATE, eps=1e-5)


def policy(time_step):
    """Draws actions; the buffer keeps the values and log-probabilities with them."""
    choice = Categorical(logits=actor(time_step.observation))
    action = choice.sample()
    value = critic(time_step.observation)[:, 0]
    return action, {"value": value, "log_prob": choice.log_prob(action)}


def loss(batch):
    choice = Categorical(logits=actor(batch.observation))
    ratio = (choice.log_prob(batch.action) - batch.extras["log_prob"]).exp()
    advantages = batch.advantages - batch.advantages.mean()
    advantages = advantages / (batch.advantages.std() + 1e-8)
    clipped = ratio.clamp(1 - CLIP, 1 + CLIP)
    gain = torch.min(ratio * advantages, clipped * advantages).mean()
    error = (critic(batch.observation)[:, 0] - batch.returns).pow(2).mean()
    return 0.5 * error - gain - 0.01 * choice.entropy().mean()


pool = envkit.make("gymnasium:CartPole-v1", num_envs=NUM_ENVS)
with TorchEnvironment(LogEpisodes(pool, "runs/ppo_torch", overwrite=True)) as env:
    env.seed(SEED)
    buffer = RolloutBuffer(env, ROLLOUT)
    for steps in range(0, STEPS, NUM_ENVS * ROLLOUT):
        buffer.collect(env, policy)
        # The learning rate falls to zero, so that the last policy is a steady one.
        optimizer.param_groups[0]["lr"] = LEARNING_RATE * (1 - steps / STEPS)
        transitions = buffer.transitions(discount=DISCOUNT, lam=LAM)
        for batch in transitions.minibatches(MINIBATCH, EPOCHS):
            optimizer.zero_grad()
            loss(batch).backward()
            nn.utils.clip_grad_norm_(parameters, 0.5)
            optimizer.step()

# The test: one episode of each of 50 new environments, with the likeliest actions.
test = TorchEnvironment(envkit.make("CartPole", batch_size=50, seed=SEED + 1))
earned, playing = torch.zeros(50), torch.ones(50, dtype=bool)
time_step = test.reset()
while playing.any():
    with torch.no_grad():
        time_step = test.step(actor(time_step.observation).argmax(dim=1))
    earned += time_step.reward * playing
    playing &= ~time_step.is_last()

try:
    envkit.plot("runs/ppo_torch").savefig("ppo_torch.png")
    print("learning curve: ppo_torch.png")
except ImportError as error:  # Matplotlib is only for the picture.
    print(error)
print(f"mean return of 50 test episodes: {earned.mean():.0f} of 500")
