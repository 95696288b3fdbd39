"""SkyRL-Gym makes environments of `to_skyrl`, and SkyRL's generator plays them.

Run them with `make test-skyrl`.
"""

from __future__ import annotations

import asyncio
import json
import random
import re

import pytest
import skyrl_gym
from skyrl_gym.envs.registration import deregister, register
from skyrl_gym.metrics import aggregate_for_environment

from envkit.sessions import SessionLost, to_skyrl
from tests.sessions.environments import Traps

# SkyRL and what it imports warn of what they will change.
pytestmark = pytest.mark.filterwarnings("ignore")
PROMPT = [{"role": "user", "content": "Find the way out."}]


@pytest.fixture(autouse=True)
def _nothing_left():
    """Replaces the one of all tests here: SkyRL leaves threads of its own."""


@pytest.fixture(name="traps")
def registered():
    """Environments under the name "traps"."""
    cls = to_skyrl(Traps, 8, backend="process")
    register(id="traps", entry_point=cls)
    yield cls
    deregister("traps")
    cls.close_environments()


def call(tool, **arguments):
    return json.dumps({"name": tool, "arguments": arguments})


def test_skyrl_gym_makes_and_plays_them(traps):
    extras = {"seed": 4, "max_turns": 5}
    with skyrl_gym.make("traps", env_config={}, extras=extras) as environment:
        messages, _ = environment.init(PROMPT)
        right = int(re.search(r"\d+", messages[0]["content"])[0])
        assert not environment.step(call("open", door=-1))["done"]
        assert environment.step(call("open", door=right))["done"]
    metrics = aggregate_for_environment("traps", [environment.get_metrics()])
    assert metrics == {"terminated": 1.0, "truncated": 0.0, "total": 0.75, "steps": 2.0}


class Engine:
    """Replies like a model that finds the way out, after walls and traps."""

    def __init__(self, tokenizer, share):
        self.tokenizer, self.share = tokenizer, share
        self.choose = random.Random(7)

    async def generate(self, request, model=None):
        await asyncio.sleep(0)
        prompts = [self.tokenizer.decode(ids) for ids in request["prompt_token_ids"]]
        replies = [self.reply(text) for text in prompts]
        end = [self.tokenizer.eos_token_id]
        return {
            "responses": replies,
            "response_ids": [
                self.tokenizer(each)["input_ids"] + end for each in replies
            ],
            "stop_reasons": ["stop"] * len(replies),
            "response_logprobs": None,
        }

    def reply(self, text):
        if self.choose.random() < self.share:
            return call("touch", trap="die")
        right = int(re.search(r"right door is (\d+)", text)[1])
        return call("open", door=self.choose.choice([right, -1]))

    async def finish_session(self, session_id):
        pass


@pytest.fixture(name="generator")
def generator_of(traps):
    """A function from the share of traps to SkyRL's generator."""
    home = pytest.importorskip(
        "skyrl.train.generators.skyrl_gym_generator", reason="skyrl is not installed"
    )
    from skyrl.train.config import GeneratorConfig, SkyRLGymConfig

    from tests.sessions.chat_models import chat_tokenizer

    config = GeneratorConfig()
    config.batched, config.max_turns, config.max_input_length = False, 4, 4096
    config.chat_template.source, config.chat_template.name_or_path = "name", None
    config.sampling_params.logprobs = None
    workers = SkyRLGymConfig()
    workers.max_env_workers = 4
    tokenizer = chat_tokenizer()

    class Again(home.SkyRLGymGenerator):
        """Plays an episode again whose environment was lost, as the page says."""

        async def agent_loop(self, *args, **kwargs):
            for _ in range(30):
                try:
                    return await super().agent_loop(*args, **kwargs)
                except SessionLost as error:
                    lost = error
            raise lost

    def make(share, *, again=False):
        cls = Again if again else home.SkyRLGymGenerator
        return cls(
            generator_cfg=config,
            skyrl_gym_cfg=workers,
            inference_engine_client=Engine(tokenizer, share),
            tokenizer=tokenizer,
        )

    return make


def generate(generator):
    batch = {
        "prompts": [PROMPT] * 8,
        "env_classes": ["traps"] * 8,
        "env_extras": [{"seed": number // 4} for number in range(8)],
    }
    out = asyncio.run(generator.generate(batch, disable_tqdm=True))
    return [sum(rewards) for rewards in out["rewards"]], out


def test_skyrls_generator_plays_a_batch(generator):
    rewards, out = generate(generator(0.0))
    assert rewards == [each["total"] for each in out["env_metrics"]]
    for each in out["env_metrics"]:
        assert each["terminated"] == (each["total"] > -1.0)
        assert each["truncated"] == (each["total"] == -1.0)


def test_a_lost_episode_ends_the_batch_and_makes_no_sample(generator):
    with pytest.raises(SessionLost, match="killed by SIGKILL"):
        generate(generator(0.3))
    # The environments that SkyRL did not close are free again.
    assert len(generate(generator(0.0))[0]) == 8


def test_a_lost_episode_can_be_played_again(generator):
    rewards, out = generate(generator(0.3, again=True))
    assert rewards == [each["total"] for each in out["env_metrics"]]
    # Without a lost step, each is what walls and the way out add up to.
    assert set(rewards) <= {1.0, 0.75, 0.5, 0.25, -1.0}
