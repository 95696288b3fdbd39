"""256 agents at once count legs: questions of Reasoning Gym, eight attempts at each.

The agent is a few lines of Python that don't know every animal, and guess the others.
Put your language model in the place of `think`, and any dataset in the place of
`leg_counting`.

    pip install reasoning-gym
"""

import asyncio
import random
import re

import envkit
from envkit.sessions import Sessions

SESSIONS = 256
GROUPS = 128  # of eight attempts at the same question
ANIMALS = 3  # at most, in a question
KNOWN = {
    0: ["snake", "sea slug", "jellyfish", "flatworm", "leech"],
    2: ["chicken", "bird", "human", "duck"],
    4: ["dog", "cat", "cow", "horse", "lion", "elephant", "giraffe", "tiger", "sheep"],
    6: ["ant", "bee", "beetle", "butterfly", "cockroach", "cricket", "firefly", "wasp"],
}
LEGS = {animal: legs for legs, animals in KNOWN.items() for animal in animals}


def think(question):
    """Returns the number of legs, with a guess for each unknown animal."""
    counts = re.findall(r"(\d+) ([a-z ]+?)s?[,?]", question)
    legs = sum(
        int(count) * LEGS.get(animal, random.choice([4, 6, 8, 10]))
        for count, animal in counts
    )
    return f"I count <answer>{legs}</answer>"


async def attempt(session):
    turn = await session.reset()
    while turn.end is None:
        turn = await session.step(think(turn.text))
    return turn


async def play():
    target = "reasoning_gym:leg_counting"
    async with Sessions(target, SESSIONS, max_animals=ANIMALS) as sessions:
        groups = [sessions.group(seed=seed, size=8) for seed in range(GROUPS)]
        with envkit.progress(sessions, 8 * GROUPS):
            return await asyncio.gather(*[group.run(attempt) for group in groups])


groups = asyncio.run(play())
groups = [[turn.total for turn in group if not turn.is_lost] for group in groups]
right = sum(total == 1.0 for group in groups for total in group)
mixed = sum(len(set(group)) > 1 for group in groups)
print(f"{mixed} of {GROUPS} groups have good and bad attempts, from which GRPO learns")
print(f"{right} of {sum(map(len, groups))} answers were right")
