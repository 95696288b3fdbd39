"""Reasoning Gym's questions, beside the same datasets without envkit."""

from __future__ import annotations

import asyncio

import pytest

import envkit
from envkit import ParallelPyEnvironment
from envkit.adapters import suite_reasoning_gym
from envkit.errors import SpecError
from envkit.sessions import Sessions
from envkit.testing import check_environment

reasoning_gym = pytest.importorskip(
    "reasoning_gym", reason="needs Reasoning Gym: pip install reasoning-gym"
)

# One draws from `random`; the questions of another would not pickle.
DATASETS = ("basic_arithmetic", "leg_counting", "list_functions", "string_manipulation")


@pytest.mark.parametrize("name", DATASETS[:2])
def test_a_seed_asks_for_the_entry_of_its_index(name):
    dataset = reasoning_gym.create_dataset(name, seed=5, size=20)
    with envkit.make(f"reasoning_gym:{name}", dataset_seed=5, size=20) as env:
        for seed in (0, 3, 19, 23):
            entry = dataset[seed % 20]
            assert entry["question"] == env.reset(seed=seed).observation.item()
            assert {"index": seed % 20} == env.get_info()
            time_step = env.step(entry["answer"])
            assert (time_step.reward, time_step.discount) == (1, 0)
            assert time_step.is_last()
            info = env.get_info()
            assert entry["answer"] == info["correct_answer"] == info["answer"]
            assert entry["metadata"] == info["metadata"]


@pytest.mark.parametrize(
    ("reply", "answer"),
    [
        ("<answer>{}</answer>", "{}"),
        ("First <answer>1</answer>, no: <answer> {}\n</answer>", "{}"),
        (" {} ", "{}"),
        ("about {}", "about {}"),
        ("", ""),
    ],
)
def test_a_reply_is_scored_as_the_dataset_scores_the_answer_in_it(reply, answer):
    dataset = reasoning_gym.create_dataset("leg_counting", seed=0)
    entry = dataset[2]
    reply, answer = (text.format(entry["answer"]) for text in (reply, answer))
    with envkit.make("reasoning_gym:leg_counting") as env:
        env.reset(seed=2)
        score = dataset.score_answer(answer, entry)
        assert score == pytest.approx(float(env.step(reply).reward))
        assert answer == env.get_info()["answer"]


def test_a_reply_that_is_no_text_is_refused():
    with envkit.make("reasoning_gym:leg_counting", seed=7) as env:
        env.reset()
        with pytest.raises(SpecError, match="holds None"):
            env.step(None)
        assert env.step("112").is_last()


def test_without_a_tag_the_whole_reply_is_the_answer():
    with envkit.make("reasoning_gym:leg_counting", answer_tag=None) as env:
        env.reset(seed=2)
        env.step("<answer>4</answer>")
        assert "<answer>4</answer>" == env.get_info()["answer"]


def test_a_reply_with_which_scoring_fails_is_wrong():
    with envkit.make("reasoning_gym:prime_factorization") as env:
        env.reset(seed=2)
        time_step = env.step("((")
        assert (time_step.reward, time_step.is_last()) == (0, True)
        assert "ValueError" in env.get_info()["score_error"]


def test_later_questions_are_drawn_in_the_same_order_in_every_run():
    def indices():
        with envkit.make("reasoning_gym:leg_counting") as env:
            env.seed(4)
            found = []
            for _ in range(5):
                env.reset()
                found.append(int(env.get_info()["index"]))
            return found

    assert indices() == indices()
    assert 4 == indices()[0]
    assert len({*indices()}) > 3


def test_an_entry_depends_on_its_index_alone():
    """`list_functions` draws from `random` for some of its entries."""

    def questions(seeds):
        with envkit.make("reasoning_gym:list_functions") as env:
            return {seed: env.reset(seed=seed).observation.item() for seed in seeds}

    forward = questions(range(40))
    assert forward == questions(reversed(range(40)))


def test_datasets_can_be_mixed():
    datasets = [DATASETS[0], {"name": DATASETS[1], "weight": 2.0}]
    with envkit.make("reasoning_gym:composite", datasets=datasets) as env:
        for seed in range(3):
            env.reset(seed=seed)
            env.step("")
            assert env.get_info()["metadata"]["source_dataset"] in DATASETS


@pytest.mark.parametrize("name", DATASETS)
def test_datasets_pass_check_environment(name):
    check_environment(
        lambda: envkit.make(f"reasoning_gym:{name}"),
        steps=20,
        require=["seed", "state", "info_spec"],
    )


async def attempt(session):
    turn = await session.reset()
    end = await session.step("I think it is <answer>24</answer>.")
    return turn.text, end.reward, end.end, end.info["correct_answer"]


@pytest.mark.parametrize(("backend", "num_workers"), [("thread", None), ("process", 2)])
def test_256_sessions_of_one_seed_have_one_question(backend, num_workers):
    async def play(size):
        async with Sessions(
            "reasoning_gym:leg_counting",
            size,
            backend=backend,
            num_workers=num_workers if size > 1 else 1,
        ) as sessions:
            return await sessions.group(seed=11, size=size).run(attempt)

    (alone,) = asyncio.run(play(1))
    assert "terminated" == alone[2]
    assert all(found == alone for found in asyncio.run(play(256)))


def test_workers_have_the_entries_of_one_process():
    dataset = reasoning_gym.create_dataset("leg_counting", seed=0)
    make = "reasoning_gym:leg_counting"
    with ParallelPyEnvironment([make] * 4, num_workers=2) as pool:
        pool.seed([0, 1, 2, 3])
        shown = pool.reset().observation.tolist()
    assert [dataset[index]["question"] for index in range(4)] == shown


def test_names_are_reasoning_gyms():
    listed = suite_reasoning_gym.names()
    assert {"leg_counting", "sudoku"} <= {*listed}
    assert "composite" not in listed


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        (["leg_count"], ValueError, "Did you mean 'leg_counting'"),
        (["leg_counting", {"max_animal": 3}], TypeError, "Did you mean 'max_animals'"),
        (["leg_counting", {"min_animals": 0}], ValueError, "must be positive"),
        (["leg_counting", {"size": 0}], ValueError, "size must be an integer"),
        (["leg_counting", {"seed": 3}], TypeError, "The dataset's is dataset_seed"),
        (["composite"], ValueError, "at least one dataset"),
        (["composite", {"datasets": ["leg_count"]}], ValueError, "'leg_counting'"),
        (["composite", {"datasets": [{}]}], TypeError, "dictionary with 'name'"),
    ],
)
def test_refusals_say_what_is_wrong(arguments, error, said):
    name, *settings = arguments
    with pytest.raises(error) as caught:
        suite_reasoning_gym.load(name, **dict(*settings))
    assert said in str(caught.value)
