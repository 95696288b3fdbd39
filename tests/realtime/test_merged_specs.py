"""Which rewards and discounts can be merged, and what comes of them."""

from __future__ import annotations

import functools
import re

import numpy as np
import pytest

from envkit import ArraySpec, BoundedArraySpec
from envkit.realtime import RealTimeEnvironment
from envkit.realtime.merged_specs import merged_spec
from envkit.specs.environment_spec import EnvironmentSpec
from envkit.wrappers import EpisodeLimit
from tests.realtime.games import Diary, Paying

FLOAT = ArraySpec((), np.float32)
PAIR = ArraySpec((2,), np.float32)


def run(reward=FLOAT, discount=FLOAT, **options):
    """Returns two ticks in one, each with a reward of 3 and a discount of 0.5."""
    make = functools.partial(Paying, reward, discount)
    env = RealTimeEnvironment(make, 10, host="virtual", think_time=0.1, **options)
    env.reset()
    return env.step(1)


@pytest.mark.parametrize(
    ("reward", "discount", "expected"),
    [
        (FLOAT, FLOAT, 4.5),
        (PAIR, FLOAT, [4.5, 4.5]),
        (PAIR, PAIR, [4.5, 4.5]),
        ({"a": FLOAT, "b": PAIR}, FLOAT, {"a": 4.5, "b": [4.5, 4.5]}),
        (
            {"a": FLOAT, "b": PAIR},
            {"a": FLOAT, "b": FLOAT},
            {"a": 4.5, "b": [4.5, 4.5]},
        ),
    ],
    ids=str,
)
def test_one_discount_is_for_all_rewards_or_one_for_each(reward, discount, expected):
    merged = run(reward, discount).reward
    parts = merged if isinstance(merged, dict) else {"it": merged}
    expected = expected if isinstance(expected, dict) else {"it": expected}

    assert expected == {name: part.tolist() for name, part in parts.items()}


def test_whole_numbers_are_summed_up_to_their_limits():
    rewards = [
        run(ArraySpec((), dtype), merge="sum", act_every=ticks).reward
        for dtype, ticks in ((np.int64, 1), (np.int8, 60))
    ]

    assert [(6, np.int64), (127, np.int8)] == [
        (reward.item(), reward.dtype) for reward in rewards
    ]


def refusal(**specs):
    options = specs.pop("options", {})
    with pytest.raises(ValueError, match="RealTimeEnvironment cannot") as caught:
        run(**specs, **options)
    return str(caught.value)


def test_whole_numbers_cannot_be_discounted():
    assert (
        "RealTimeEnvironment cannot merge the rewards of Paying with its discounts: "
        "reward['a'] is of dtype int64, and what is discounted is no whole number. Use "
        "merge='sum'."
    ) == refusal(reward={"a": ArraySpec((), np.int64)})


def test_what_is_no_number_cannot_be_summed():
    assert (
        "RealTimeEnvironment cannot add up the rewards of Paying: reward is of dtype "
        "bool."
    ) == refusal(reward=ArraySpec((), bool), options={"merge": "sum"})


@pytest.mark.parametrize(
    ("reward", "discount", "shapes"),
    [
        (FLOAT, PAIR, "() and (2,)"),
        (ArraySpec((3,), np.float32), PAIR, "(3,) and (2,)"),
        (FLOAT, {"a": FLOAT, "b": FLOAT}, "() and ['a']: (), ['b']: ()"),
    ],
    ids=str,
)
def test_a_discount_has_to_fit_its_reward(reward, discount, shapes):
    assert (
        f"RealTimeEnvironment cannot merge the rewards of Paying with its discounts: "
        f"{shapes}. There is one discount for all rewards, or one for each. "
        "merge='sum' leaves discounts out of the rewards."
    ) == refusal(reward=reward, discount=discount)


def test_discounts_of_any_shape_may_be_left_out():
    merged = run(FLOAT, PAIR, merge="sum")

    assert (6.0, [0.25, 0.25]) == (merged.reward.item(), merged.discount.tolist())


def test_an_end_that_is_shown_again_cannot_be_merged():
    message = (
        "RealTimeEnvironment cannot run EpisodeLimit, which repeats the LAST of an "
        "episode: of steps that are merged nobody would see how often. Wrap the "
        "RealTimeEnvironment instead."
    )
    with pytest.raises(ValueError, match=re.escape(message)):
        RealTimeEnvironment(lambda: EpisodeLimit(Diary(), 2), 10, host="virtual")


@pytest.mark.parametrize(
    ("bounds", "merged"),
    [
        ((0, 1), (0, np.inf)),
        ((-1, 0), (-np.inf, 0)),
        ((1, 2), (0, np.inf)),
        ((-2, -1), (-np.inf, 0)),
    ],
)
def test_a_sum_is_bounded_only_by_0(bounds, merged):
    spec = EnvironmentSpec(
        FLOAT, FLOAT, BoundedArraySpec((), np.float32, *bounds), FLOAT
    )
    most = float(np.finfo(np.float32).max)
    reward = merged_spec(spec).reward

    assert [float(np.clip(bound, -most, most)) for bound in merged] == [
        reward.minimum.item(),
        reward.maximum.item(),
    ]


def test_a_product_of_discounts_lies_between_0_and_1():
    narrow = BoundedArraySpec((), np.float32, 0.9, 0.95)
    wide = BoundedArraySpec((), np.float32, -1, 2, "odd")
    products = [
        merged_spec(EnvironmentSpec(FLOAT, FLOAT, FLOAT, discount)).discount
        for discount in (narrow, wide, FLOAT)
    ]

    assert [
        BoundedArraySpec((), np.float32, 0, 1),
        ArraySpec((), np.float32, "odd"),
        FLOAT,
    ] == products
