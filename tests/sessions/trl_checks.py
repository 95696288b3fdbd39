"""TRL's `GRPOTrainer` trains a tiny model in environments of `to_trl`.

Run them with `make test-trl`.
"""

from __future__ import annotations

import math
import random
import re
import threading

import pytest
import torch
from datasets import Dataset
from transformers.utils import get_json_schema
from trl import GRPOConfig, GRPOTrainer
from trl.chat_template_utils import qwen3_chat_template

from envkit.sessions import to_trl
from tests.sessions.chat_models import chat_tokenizer, tiny_model, tool_call
from tests.sessions.environments import Guess, Room, Traps
from tests.waiting import until

# TRL and transformers warn of what they will change.
pytestmark = pytest.mark.filterwarnings("ignore")
PROMPT = [{"role": "user", "content": "Find the way out."}]
BATCH, GROUP = 8, 4
torch.set_num_threads(1)


def ours():
    return [each for each in threading.enumerate() if "envkit" in each.name]


@pytest.fixture(autouse=True)
def _nothing_left():
    """Replaces the one of all tests here: PyTorch leaves threads of its own."""
    yield
    assert until(lambda: not ours()), ours()


class Trainer(GRPOTrainer):
    """Writes down what TRL makes of each batch."""

    def _calculate_rewards(self, inputs, *args):
        self.rewards = super()._calculate_rewards(inputs, *args)[:, -1].tolist()
        return torch.tensor(self.rewards)[:, None]

    def _generate_and_score_completions(self, inputs):
        out = super()._generate_and_score_completions(inputs)
        for place, (row, each) in enumerate(
            zip(inputs, self.environments, strict=True)
        ):
            self.seen.append(
                {
                    "seed": row["seed"],
                    "is_lost": each.is_lost,
                    "total": each.last_turn and each.last_turn.total,
                    "end": each.last_turn and each.last_turn.end,
                    "reward": self.rewards[place],
                    "advantage": out["advantages"][place].item(),
                }
            )
        return out


def train(environments, reply, tmp_path, steps=3):
    """Trains for some steps, and returns the samples and the logs."""
    tokenizer = chat_tokenizer(qwen3_chat_template)
    rows = [{"prompt": PROMPT, "seed": seed} for seed in range(8)]
    trainer = Trainer(
        model=tiny_model(tokenizer, reply),
        processing_class=tokenizer,
        train_dataset=Dataset.from_list(rows),
        environment_factory=environments,
        args=GRPOConfig(
            output_dir=str(tmp_path),
            per_device_train_batch_size=BATCH,
            num_generations=GROUP,
            max_completion_length=512,
            max_steps=steps,
            logging_steps=1,
            save_strategy="no",
            report_to=[],
            use_cpu=True,
        ),
    )
    trainer.seen = []
    trainer.train()
    return trainer.seen, trainer.state.log_history


class Walker:
    """Finds the way out, after walls and traps; or gives up."""

    def __init__(self, trap, share):
        self.choose = random.Random(7)
        self.trap, self.share = trap, share

    def __call__(self, text):
        if "You are out" in text or text.count("<tool_response>") == 4:
            return "Done."
        if self.choose.random() < self.share:
            return tool_call("touch", trap=self.trap)
        right = int(re.findall(r"right door is (\d+)", text)[-1])
        return tool_call("open", door=self.choose.choice([right, -1]))


def expected_advantages(rewards):
    """GRPO's, of the samples that have a reward; those of others are 0."""
    found = []
    for start in range(0, len(rewards), GROUP):
        group = rewards[start : start + GROUP]
        known = torch.tensor([each for each in group if not math.isnan(each)])
        spread = known.std().item() if len(known) > 1 else 0.0
        mean = known.mean().item() if len(known) else 0.0
        found += [
            0.0 if math.isnan(each) else (each - mean) / (spread + 1e-4)
            for each in group
        ]
    return found


@pytest.mark.parametrize(
    ("backend", "trap", "share"),
    [("thread", "raise", 0.0), ("thread", "raise", 0.2), ("process", "die", 0.2)],
)
def test_no_lost_episode_is_a_sample(backend, trap, share, tmp_path):
    with to_trl(Traps, BATCH, backend=backend) as environments:
        seen, logs = train(environments, Walker(trap, share), tmp_path)
    assert len(seen) == 3 * BATCH
    assert any(each["is_lost"] for each in seen) == (share > 0)
    assert any(each["end"] == "terminated" for each in seen)
    for each in seen:
        if each["is_lost"]:
            assert math.isnan(each["reward"])
            assert each["advantage"] == 0.0
        else:
            assert each["reward"] == each["total"]
    for start in range(0, len(seen), GROUP):
        assert len({each["seed"] for each in seen[start : start + GROUP]}) == 1
    assert [each["advantage"] for each in seen] == pytest.approx(
        expected_advantages([each["reward"] for each in seen]), abs=1e-2
    )
    known = [each["reward"] for each in seen[:BATCH] if not each["is_lost"]]
    assert logs[0]["rewards/Traps/mean"] == pytest.approx(sum(known) / len(known))


def test_a_batch_without_a_sample_trains_nothing(tmp_path):
    with to_trl(Traps, BATCH) as environments:
        seen, logs = train(environments, Walker("raise", 1.0), tmp_path, steps=1)
    assert all(math.isnan(each["reward"]) for each in seen)
    assert logs[0]["grad_norm"] == 0.0


def test_an_environment_without_tools_is_played_with_one(tmp_path):
    def reply(text):
        if "Right." in text:
            return "Done."
        words = re.findall(r"Say (word\d+)", text)
        return tool_call("act", action=words[-1] if "Wrong." in text else "what")

    with to_trl(Guess, BATCH) as environments:
        seen, _ = train(environments, reply, tmp_path, steps=1)
    assert {(each["end"], each["reward"]) for each in seen} == {("terminated", 0.5)}


def test_the_schemas_of_tools_are_those_of_the_environment():
    with to_trl(Room, 1) as environments:
        environment = environments()
        for name, tool in {each.name: each for each in Room().tools}.items():
            function = get_json_schema(getattr(environment, name))["function"]
            assert function["description"] == tool.description
            ours, theirs = tool.parameters, function["parameters"]
            assert theirs["required"] == ours["required"]
            for argument, schema in ours["properties"].items():
                for key in schema.keys() - {"default"}:
                    assert theirs["properties"][argument][key] == schema[key]
