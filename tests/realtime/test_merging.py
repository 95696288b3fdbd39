"""What an agent sees of ticks that it did not see one by one."""

from __future__ import annotations

import functools
import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from envkit import ArraySpec, BoundedArraySpec, StepType
from envkit.realtime import RealTimeEnvironment
from envkit.realtime.merging import EpisodeMerger, merged_spec
from envkit.specs.environment_spec import EnvironmentSpec
from tests.realtime.games import Paying

FIRST, MID, LAST = int(StepType.FIRST), int(StepType.MID), int(StepType.LAST)


def tick(merger, step_type, reward=0.0, discount=1.0, name=None):
    merger.add(step_type, [np.array(reward)], [np.array(discount)], name)


def facts(merged):
    """Returns what most tests want to know of a merged step."""
    return (
        merged.step_type,
        float(merged.reward[0]),
        float(merged.discount[0]),
        merged.tick,
    )


def begun(name="first", **options):
    """Returns a merger in an episode whose beginning has been seen."""
    merger = EpisodeMerger(**options)
    tick(merger, FIRST, name=name)
    merger.take()
    return merger


@pytest.mark.parametrize(
    ("discounted", "rewards"), [(True, 1.0 + 0.5 * 4.0 + 0.125 * 8.0), (False, 13.0)]
)
def test_unseen_ticks_are_merged_into_one_step(discounted, rewards):
    merger = begun(discounted=discounted)
    tick(merger, MID, 1.0, 0.5)
    tick(merger, MID, 4.0, 0.25)
    tick(merger, MID, 8.0, 1.0, "now")
    merged = merger.take()
    tick(merger, MID, 2.0, 0.5, "later")

    assert (MID, rewards, 0.125, "now") == facts(merged)
    # What has been seen is not merged again, and nothing new earns nothing.
    assert (MID, 2.0, 0.5, "later") == facts(merger.take())
    assert (MID, 0.0, 1.0, "later") == facts(merger.take())


def test_before_the_first_tick_the_first_observation_repeats_as_a_mid():
    assert (MID, 0.0, 1.0, "first") == facts(begun().take())


def test_the_end_of_an_episode_is_seen_before_the_beginning_of_the_next():
    merger = begun()
    tick(merger, MID, 1.0)
    tick(merger, LAST, 2.0, 0.0, "end")
    tick(merger, FIRST, name="next")
    tick(merger, MID, 8.0, 1.0, "now")

    assert [
        (LAST, 3.0, 0.0, "end"),
        (FIRST, 0.0, 1.0, "next"),
        (MID, 8.0, 1.0, "now"),
    ] == [facts(merger.take()) for _ in range(3)]


def test_after_the_end_nothing_is_due_until_the_next_episode():
    merger = begun()
    tick(merger, LAST, 1.0, 0.0)
    merger.take()
    assert not merger.has_any
    assert not merger.is_at_edge
    with pytest.raises(RuntimeError, match="no episode has begun"):
        merger.take()


def test_an_episode_that_passed_unseen_is_skipped_and_counted():
    merger = begun()
    tick(merger, LAST, 1.0, 0.0, "end")
    for reward in (3.0, 5.0):
        tick(merger, FIRST)
        tick(merger, MID, reward)
        tick(merger, LAST, reward, 0.0)
    tick(merger, FIRST, name="newest")
    end, first = merger.take(), merger.take()

    assert (LAST, 1.0, 0.0, "end") == facts(end)
    assert (FIRST, 0.0, 1.0, "newest") == facts(first)
    assert (2, 4, [np.array(16.0)]) == first.skipped
    assert (0, 3) == (end.episode, first.episode)


def test_the_newest_episode_is_seen_even_after_its_end():
    merger = EpisodeMerger()
    tick(merger, FIRST, name="first")
    tick(merger, MID, 1.0)
    tick(merger, LAST, 2.0, 0.0, "end")

    assert [(FIRST, 0.0, 1.0, "first"), (LAST, 3.0, 0.0, "end")] == [
        facts(merger.take()),
        facts(merger.take()),
    ]


def test_an_episode_left_in_its_middle_ends_as_if_cut_off():
    merger = begun()
    tick(merger, MID, 1.0, 0.5, "middle")
    tick(merger, FIRST, name="next")
    end = merger.take()
    assert (LAST, 1.0, 0.5, "middle") == facts(end)
    assert end.interrupted
    assert (FIRST, 0.0, 1.0, "next") == facts(merger.take())


def test_a_repeated_last_counts_once():
    merger = begun()
    tick(merger, LAST, 1.0, 0.0, "end")
    tick(merger, LAST, 0.0, 0.0, "padding")
    assert (LAST, 1.0, 0.0, "end") == facts(merger.take())
    tick(merger, LAST, 0.0, 0.0, "padding")
    assert not merger.has_any


def test_ends_and_beginnings_of_episodes_are_recognised():
    merger = EpisodeMerger()
    edges = []
    for step_type in (FIRST, MID, LAST, FIRST):
        tick(merger, step_type)
        edges.append(merger.is_at_edge)
        merger.take()
    assert [True, False, True, True] == edges


def test_actions_apply_only_to_a_seen_running_episode():
    merger = EpisodeMerger()
    takes = [merger.takes_actions]
    for step_type in (FIRST, MID):
        tick(merger, step_type)
        takes.append(merger.takes_actions)
        merger.take()
        takes.append(merger.takes_actions)
    tick(merger, LAST)
    takes.append(merger.takes_actions)
    tick(merger, FIRST)
    takes.append(merger.takes_actions)
    merger.take()
    takes.append(merger.takes_actions)

    assert [False, False, True, True, True, False, False, False] == takes


def test_rewards_and_discounts_may_have_several_parts():
    merger = EpisodeMerger()
    merger.add(FIRST, [np.zeros(2), np.array(0)], [np.ones(2), np.array(1.0)], None)
    merger.take()
    for _ in range(2):
        merger.add(
            MID,
            [np.array([1.0, 2.0]), np.array(3)],
            [np.array([0.5, 1.0]), np.array(0.1)],
            None,
        )
    merged = merger.take()

    np.testing.assert_allclose([1.5, 4.0], merged.reward[0])
    np.testing.assert_allclose(3.3, merged.reward[1])
    np.testing.assert_allclose([0.25, 1.0], merged.discount[0])


# The reference: nothing is merged on the way, all ticks are kept.


def episodes_of(ticks):
    """Splits ticks, each (step type, reward, discount), into episodes."""
    episodes = []
    for index, (step_type, reward, discount) in enumerate(ticks):
        if step_type == FIRST:
            episodes.append([])
        episodes[-1].append((index, step_type, reward, discount))
    return episodes


def merged_reference(part):
    """Merges some steps of one episode as if they had been one."""
    reward, discount = 0.0, 1.0
    for _, _, tick_reward, tick_discount in part:
        reward += discount * tick_reward
        discount *= tick_discount
    return reward, discount


lives = st.lists(
    st.lists(st.tuples(st.floats(-10, 10), st.floats(0, 1)), min_size=1, max_size=4),
    min_size=1,
    max_size=5,
)


@given(lives, st.data())
def test_merging_agrees_with_a_reference_over_all_ticks(steps, data):
    ticks = []
    for episode in steps:
        ticks.append((FIRST, 0.0, 1.0))
        ticks += [(MID, *step) for step in episode[:-1]]
        ticks.append((LAST, episode[-1][0], 0.0))
    merger, seen, looked = EpisodeMerger(), [], []
    for index, (step_type, reward, discount) in enumerate(ticks):
        tick(merger, step_type, reward, discount, index)
        while merger.has_any and data.draw(st.booleans()):
            looked.append(index)
            seen.append(merger.take())

    # The grammar, and no reward of two episodes in one step.
    types = [merged.step_type for merged in seen]
    for before, after in itertools.pairwise(types):
        assert (after == FIRST) == (before == LAST)
    reference = episodes_of(ticks)
    shown: dict[int, list] = {}
    for merged in seen:
        shown.setdefault(merged.episode, []).append(merged)
    for number, parts in shown.items():
        whole = {index: entry for index, *_ in reference[number] for entry in [index]}
        assert FIRST == parts[0].step_type
        assert reference[number][0][0] == parts[0].tick
        done = reference[number][0][0]
        for part in parts[1:]:
            between = [
                entry for entry in reference[number] if done < entry[0] <= part.tick
            ]
            assert part.tick in whole
            assert len(between) == part.ticks
            reward, discount = merged_reference(between)
            assert reward == pytest.approx(float(part.reward[0]), abs=1e-9)
            assert discount == pytest.approx(float(part.discount[0]), abs=1e-9)
            done = part.tick
        ends = [part for part in parts if part.step_type == LAST]
        assert len(ends) <= 1
        if ends:
            assert reference[number][-1][0] == ends[0].tick
    # Every episode that was seen to begin is seen to end before another begins, and
    # those in between are counted.
    numbers = sorted(shown)
    for number in numbers[:-1]:
        assert LAST == shown[number][-1].step_type
    for before, after in itertools.pairwise(numbers):
        skipped = shown[after][0].skipped
        assert after - before - 1 == skipped.episodes
        assert skipped.steps == sum(
            len(reference[number]) - 1 for number in range(before + 1, after)
        )


# Specs of merged time steps.

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
def test_a_discount_applies_to_all_rewards_or_each_has_its_own(
    reward, discount, expected
):
    merged = run(reward, discount).reward
    parts = merged if isinstance(merged, dict) else {"it": merged}
    expected = expected if isinstance(expected, dict) else {"it": expected}
    assert expected == {name: part.tolist() for name, part in parts.items()}


def test_integers_are_summed_up_to_their_limits():
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


def test_rewards_that_are_no_numbers_are_refused():
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
def test_a_discount_must_fit_its_reward(reward, discount, shapes):
    assert (
        f"RealTimeEnvironment cannot merge the rewards of Paying with its discounts: "
        f"{shapes}. There is one discount for all rewards, or one for each. "
        "merge='sum' leaves discounts out of the rewards."
    ) == refusal(reward=reward, discount=discount)


def test_discounts_of_any_shape_can_be_ignored():
    merged = run(FLOAT, PAIR, merge="sum")
    assert (6.0, [0.25, 0.25]) == (merged.reward.item(), merged.discount.tolist())


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
