"""Universe's episodes without sockets: whatever comes, in whatever order."""

from __future__ import annotations

import collections
import json
import math

from hypothesis import given
from hypothesis import strategies as st

from envkit.remote.rewarder import (
    ClientEnd,
    Describe,
    ErrorReply,
    Observation,
    Pong,
    Received,
    ResetReply,
    Reward,
    RewarderError,
    Text,
)
from envkit.remote.universe_episodes import (
    EPISODES,
    AskedReset,
    EpisodeState,
    Happening,
    RemoteEpisodes,
    ResetRefusedError,
    ServedEpisodes,
)
from tests.remote import recorded_universe

numbers = st.integers(0, 6)
rewards = st.integers(-3, 3).map(float)
messages = (
    st.builds(
        Describe,
        numbers,
        st.just("A"),
        st.sampled_from(["resetting", "running"]),
        st.just(60.0),
    )
    | st.builds(Reward, numbers, rewards, st.booleans(), st.just({}))
    | st.builds(Text, numbers, st.just("a"))
    | st.builds(Observation, numbers, st.just([1]))
    | st.builds(ResetReply, numbers)
    | st.just(Pong())
)
calls = st.sampled_from(["ask", "begin", "pop", "texts"])


@given(st.lists(messages | calls, max_size=40))
def test_each_reward_is_returned_once_with_its_own_episode(events):
    episodes = RemoteEpisodes()
    sums = collections.Counter()
    requests = 0
    for event in events:
        before, state = episodes.episode, episodes.state
        if event == "ask":
            episodes.ask(requests)
            requests += 1
            assert EpisodeState.ASKED is episodes.state
        elif event == "begin":
            if episodes.begin():
                assert state in (EpisodeState.WAITING, EpisodeState.OVER)
                assert before is None or before < episodes.episode
                assert episodes.episode == episodes.newest
        elif event in ("pop", "texts"):
            if before is not None:
                number = before
                if event == "texts":
                    episodes.pop_texts()
                    continue
                popped = episodes.pop()
                assert sums.pop(number, 0.0) == popped.reward
                assert popped.done is (state is EpisodeState.OVER)
        else:
            kept = set(episodes._events)
            episodes.receive(Received(event, parent=requests - 1))
            if isinstance(event, Reward) and event.episode in episodes._events:
                # One that was forgotten meanwhile begins anew.
                if event.episode not in kept:
                    sums.pop(event.episode, None)
                sums[event.episode] += event.reward
        assert len(episodes._events) <= 2
        assert (episodes.episode is None) is (
            episodes.state in (EpisodeState.ASKED, EpisodeState.WAITING)
        )


# What the genuine server sends, with and without the reward that comes late. A reset
# has interrupted one of the episodes.
SUMS = {0: (15.0, 15.25), 1: (0.0,), 2: (15.0, 15.25), 3: (15.0, 15.25)}


@given(st.sets(st.integers(0, 50)))
def test_the_episodes_of_a_recorded_server_have_the_right_sums(looks):
    """Whenever the agent looks."""
    client, episodes = ClientEnd(), RemoteEpisodes()
    seen, ends = collections.Counter(), set()
    for place, (end, text) in enumerate(recorded_universe.SERVER):
        if end == "client":
            said = json.loads(text)
            if said["body"].get("seed") == 7:
                episodes.ask(said["headers"]["message_id"])
            continue
        episodes.receive(client.receive(text, 0.0))
        if place not in looks:
            continue
        number = episodes.episode
        if number is not None and number not in ends:
            events = episodes.pop()
            seen[number] += events.reward
            if events.done:
                ends.add(number)
        if episodes.episode is None or episodes.episode in ends:
            episodes.begin()
    for number in ends:
        assert seen[number] in SUMS[number]
    assert EpisodeState.ASKED is not episodes.state


def test_a_loss_is_still_known_if_the_agent_looks_before_the_next_episode_is_told():
    episodes = RemoteEpisodes()
    episodes.receive(Received(Describe(1, "A", "running", 60.0)))
    assert episodes.begin()
    info = {"loss": "crashed", "error": "was killed by SIGABRT"}
    episodes.receive(Received(Reward(1, 0.0, False, info)))
    assert not episodes.pop().done
    episodes.receive(Received(Describe(2, "A", "resetting", 60.0)))
    last = episodes.pop()
    assert last.done
    assert ("crashed", "was killed by SIGABRT") == last.loss


class Story:
    """What a remote says about a few episodes, in the order in which it happens."""

    def __init__(self, lengths):
        self.said, self.sums = [], {}
        for number, length in enumerate(lengths, 1):
            self.said.append(Describe(number, "A", "running", 60.0))
            for step in range(length):
                done = step == length - 1
                self.said.append(Reward(number, 1.0, done, {"discount": 0.5}))
            self.said.append(Describe(number + 1, "A", "resetting", 60.0))
            self.sums[number] = float(length)


@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=4),
    st.lists(st.booleans(), max_size=40),
    st.data(),
)
def test_the_sums_are_right_with_late_messages_and_any_pace_of_the_agent(
    lengths, looks, data
):
    story = Story(lengths)
    said = list(story.said)
    for _ in range(data.draw(st.integers(0, 3))):
        # A reward may come after word of the next episode, and before that runs.
        place = data.draw(st.integers(0, len(said) - 2))
        now, then = said[place : place + 2]
        if isinstance(now, Reward) and not isinstance(then, Reward):
            said[place : place + 2] = then, now
    episodes, seen, ends = RemoteEpisodes(), collections.Counter(), []
    looks = iter([*looks, *[True] * len(said)])
    for message in said:
        episodes.receive(Received(message))
        if not next(looks):
            continue
        if episodes.episode is None:
            episodes.begin()
        if episodes.episode is not None and not (
            # An agent that is told of the end looks no more.
            ends and ends[-1] == episodes.episode
        ):
            events = episodes.pop()
            seen[episodes.episode] += events.reward
            if events.done:
                ends.append(episodes.episode)
        if ends and ends[-1] == episodes.episode:
            episodes.begin()
    assert sorted(set(ends)) == ends
    for number in seen:
        assert seen[number] <= story.sums.get(number, 0.0)
        if number in ends and said == story.said:
            assert seen[number] == story.sums[number]


def told(episodes, *said):
    for message in said:
        episodes.receive(Received(message))


def playing(number=1):
    episodes = RemoteEpisodes()
    told(episodes, Describe(number, "A", "running", 60.0))
    assert episodes.begin()
    return episodes


def test_an_episodes_sum_includes_late_rewards():
    episodes = playing()
    told(
        episodes,
        Reward(1, 2.0, False, {}),
        Describe(2, "A", "resetting", 60.0),
        Reward(2, 7.0, False, {}),
        Reward(1, 3.0, True, {"discount": 0.5}),
        Describe(2, "A", "running", 60.0),
    )
    events = episodes.pop()
    assert (5.0, 2, True, 0.5) == (
        events.reward,
        events.count,
        events.done,
        events.discount,
    )
    assert episodes.begin()
    assert (7.0, False) == (episodes.pop().reward, episodes.done)


def test_news_of_a_newer_episode_ends_the_played_one():
    episodes = playing()
    told(episodes, Describe(2, "A", "running", 60.0))
    events = episodes.pop()
    assert (True, 1.0, True) == (
        events.done,
        events.discount,
        events.info["env_status.artificial.done"],
    )


def test_a_slow_agent_skips_to_the_newest_episode():
    episodes = playing()
    for number in range(2, 2000):
        told(
            episodes,
            Describe(number, "A", "running", 60.0),
            Reward(number, 1.0, number % 2 == 0, {}),
        )
    assert {1, 1999} == set(episodes._events)
    episodes.pop()
    assert (True, 1999, 1.0) == (
        episodes.begin(),
        episodes.episode,
        episodes.pop().reward,
    )


def test_nothing_before_the_reply_to_a_reset_counts_after_it():
    episodes = playing()
    episodes.ask(4)
    told(episodes, Reward(1, 5.0, False, {}), Describe(1, "A", "running", 60.0))
    assert not episodes.begin()
    episodes.receive(Received(ResetReply(2), parent=3))  # to an older one
    assert EpisodeState.ASKED is episodes.state
    episodes.receive(Received(ResetReply(2), parent=4))
    told(episodes, Reward(1, 5.0, False, {}), Describe(2, "A", "running", 60.0))
    assert episodes.begin()
    assert (2, 0.0) == (episodes.episode, episodes.pop().reward)


def test_a_refused_reset_gives_the_reason(message_of):
    episodes = RemoteEpisodes()
    episodes.ask(1)
    episodes.receive(Received(ErrorReply("of another request"), parent=0))
    refusal = Received(ErrorReply("no Pong here"), parent=1)
    message = message_of(ResetRefusedError, lambda: episodes.receive(refusal))
    assert "The remote refuses the reset: no Pong here" == message


def test_unread_texts_and_infos_are_limited():
    episodes = playing()
    for number in range(3000):
        episodes.receive(Received(Text(1, f"line {number}"), size=600))
        told(episodes, Reward(1, 0.0, False, {f"key {number}": number}))
    events = episodes.pop()
    texts = events.pop_texts()
    assert ("line 2999", True) == (texts[-1], len(texts) <= 1024)
    assert (256, 2999) == (len(events.info), events.info["key 2999"])
    for number in range(9):
        episodes.receive(Received(Text(1, number), size=1 << 18))
    assert [5, 6, 7, 8] == episodes.pop_texts()


def test_an_end_with_a_malformed_discount_is_a_termination():
    episodes = playing()
    told(episodes, Reward(1, 0.0, True, {"discount": math.nan}))
    assert 0.0 == episodes.pop().discount


def test_each_state_is_reached_and_each_event_has_an_effect():
    assert set(EpisodeState) == set(EPISODES)
    reached = {then for row in EPISODES.values() for then in row.values()}
    assert set(EpisodeState) == reached
    assert set(Happening) == {one for row in EPISODES.values() for one in row}


# The server's end.

asks = st.builds(
    AskedReset,
    st.sampled_from("ab"),
    st.none() | st.integers(0, 1),
    st.integers(0, 9),
    asked_at=st.floats(0, 9),
    sent_at=st.floats(0, 9) | st.just(math.nan),
)


@given(st.lists(asks | st.just("over") | st.just("run"), max_size=30))
def test_a_reset_gives_a_client_an_episode_with_a_new_number(events):
    episodes = ServedEpisodes()
    for now, event in enumerate(events):
        before = episodes.number
        if event == "run":
            episodes.run(float(now))
            assert before == episodes.number
        elif event == "over":
            assert before + 1 == episodes.reset()
            assert not episodes.is_running
        elif episodes.is_repeated(event):
            assert event.episode < episodes.number == before
        else:
            number = episodes.reset(event.episode)
            assert max(before, event.episode) < number
            episodes.remember(event, float(now))


def test_an_episode_far_in_the_future_cannot_be_ended(message_of):
    message = message_of(RewarderError, lambda: ServedEpisodes().check(10**14))
    assert message.startswith("There is no episode 1000000")
