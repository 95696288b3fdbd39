"""An option that pools no longer have raises one sentence, with what replaces it."""

from __future__ import annotations

import pytest

from envkit import AsyncParallelPyEnvironment, ParallelPyEnvironment, make
from envkit.adapters import vectorize
from envkit.testing import CountingEnv

MAKERS = {
    "ParallelPyEnvironment": lambda **options: ParallelPyEnvironment(
        [CountingEnv] * 2, **options
    ),
    "AsyncParallelPyEnvironment": lambda **options: AsyncParallelPyEnvironment(
        [CountingEnv] * 2, **options
    ),
    "make": lambda **options: make(CountingEnv, num_envs=2, **options),
    "vectorize": lambda **options: vectorize([CountingEnv] * 2, **options),
}
SENTENCES = {
    ("max_episodes_per_env", 100): "max_episodes_per_env has been removed: make the "
    "wrapper in each constructor, "
    "{call}([lambda: RebuildAfter(make_env, episodes=100)] * 8).",
    ("standby", 1): "standby has been removed: make the wrapper in each constructor, "
    "{call}([lambda: StandbyEnvironment(make_env)] * 8).",
    ("standby_workers", True): "standby_workers has been removed: make the wrapper in "
    "each constructor, "
    "{call}([lambda: StandbyEnvironment(make_env, in_workers=True)] * 8).",
    ("num_workers", "auto"): 'num_workers="auto" has been removed: `envkit bench '
    "my_game.envs:make --num-envs 8` prints the fastest call, with the num_workers to "
    "write.",
}


@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize("option", SENTENCES, ids=str)
def test_a_removed_option_raises_a_sentence_with_its_replacement(
    maker, option, message_of
):
    name, value = option
    text = message_of(TypeError, lambda: MAKERS[maker](**{name: value}))
    call = "ParallelPyEnvironment" if maker == "make" else maker
    assert SENTENCES[option].replace("{call}", call) == text
