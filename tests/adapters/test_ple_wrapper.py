"""Games of PLE as environments of envkit; `ple_games` stands in for the library."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from envkit import BatchedPyEnvironment, BoundedArraySpec, nest
from envkit.adapters.ple_parts import one_display
from envkit.adapters.ple_wrapper import PLEWrapper
from envkit.errors import ClosedError, ConstructorError, SpecError
from envkit.parallel import ParallelPyEnvironment
from envkit.testing import check_environment
from tests.adapters import ple_games
from tests.adapters.ple_games import (
    PLE,
    QuietCatcher,
    QuietSnake,
    QuietWaterWorld,
    drawn,
    make_ple,
    quiet,
)

EVERYTHING = ["episodes", "info", "render", "seed", "state"]


def same(first, second) -> bool:
    pairs = zip(nest.flatten(first), nest.flatten(second), strict=True)
    return all(
        np.asarray(a).dtype == np.asarray(b).dtype and np.array_equal(a, b)
        for a, b in pairs
    )


@pytest.mark.parametrize("observation", ["state", "screen", "both"])
@pytest.mark.parametrize("game", [QuietCatcher, QuietSnake])
def test_a_game_keeps_the_contract_of_environments(game, observation):
    report = check_environment(
        lambda: quiet(game, observation=observation), steps=300, require=EVERYTHING
    )

    assert () == report.failed


def test_a_game_that_never_ends_keeps_the_contract_of_environments():
    features = ["info", "render", "seed", "state"]

    report = check_environment(
        lambda: quiet(QuietWaterWorld), steps=100, require=features
    )

    assert () == report.failed


def test_a_batch_of_games_keeps_the_contract_of_environments():
    report = check_environment(
        lambda: BatchedPyEnvironment([quiet(), quiet()]), steps=200, require=EVERYTHING
    )

    assert () == report.failed


def test_a_pool_of_games_keeps_the_contract_of_environments():
    def make():
        return ParallelPyEnvironment([quiet] * 2, backend="inline")

    assert () == check_environment(make, steps=200, require=EVERYTHING).failed


@pytest.mark.parametrize(
    ("game", "observation"),
    [("Catcher", "both"), ("FlappyBird", "state"), ("MonsterKong", "screen")],
)
def test_a_drawn_game_keeps_the_contract_of_environments(game, observation, pygame):
    report = check_environment(
        lambda: drawn(game, observation=observation), steps=100, require=EVERYTHING
    )

    assert () == report.failed


def test_every_number_is_that_of_the_bare_library():
    env, bare = quiet(), PLE(QuietCatcher())
    bare.init()
    bare.reset_game()
    keys = bare.getActionSet()
    actions = np.random.default_rng(0).integers(len(keys), size=200)

    observation = env.reset().observation
    for action in actions:
        state = bare.getGameState()

        assert sorted(state) == list(observation)
        assert state == {key: value.item() for key, value in observation.items()}

        time_step = env.step(action)
        observation = time_step.observation
        if time_step.is_first():
            bare.reset_game()
            continue

        assert np.float32(bare.act(keys[action])) == time_step.reward
        assert bare.game_over() == time_step.is_last()
        assert {
            "frame_number": bare.getFrameNumber(),
            "lives": bare.lives(),
            "score": bare.score(),
        } == env.get_info()


def test_every_pixel_is_that_of_the_bare_library(pygame):
    bare = make_ple("Catcher")
    bare.init()
    bare.reset_game()
    keys = bare.getActionSet()
    pictures = [np.array(bare.getScreenRGB()).transpose(1, 0, 2)]
    for index in range(30):
        bare.act(keys[index % 3])
        pictures.append(np.array(bare.getScreenRGB()).transpose(1, 0, 2))

    with drawn(observation="screen") as env:
        shown = [env.reset().observation]
        shown += [env.step(index % 3).observation for index in range(30)]

        assert BoundedArraySpec((8, 12, 3), np.uint8, 0, 255) == env.observation_spec()
    assert same(pictures, shown)


def test_pictures_can_be_gray(pygame):
    with drawn(observation="screen", grayscale=True) as env:
        env.reset()
        observation = env.step(0).observation

        assert BoundedArraySpec((8, 12), np.uint8, 0, 255) == env.observation_spec()
        assert same(env.ple.getScreenGrayscale().T, observation)


def test_a_picture_is_rendered_whatever_is_observed(pygame):
    with drawn() as env:
        env.reset()
        env.step(0)

        assert (8, 12, 3) == env.render().shape
        assert same(env.ple.getScreenRGB().swapaxes(0, 1), env.render())


def test_a_window_is_not_rendered(message_of):
    env = quiet()

    assert (
        "PLEWrapper cannot render 'human', only 'rgb_array'. PLE shows a window if it "
        "is made with display_screen=True."
    ) == message_of(NotImplementedError, lambda: env.render("human"))


def test_the_last_picture_of_an_episode_is_not_the_first_of_the_next(pygame):
    with drawn(observation="screen") as env:
        first = env.reset().observation
        env.step(0)

        again = env.reset().observation

    assert not first.any()
    assert same(first, again)


def test_opening_frames_draw_the_first_picture(pygame):
    with drawn(observation="both", opening_frames=2) as env:
        observation = env.reset().observation

        assert observation["screen"].any()
        assert 2.0 == observation["state"]["fruit_y"]
        assert 2 == env.get_info()["frame_number"]


def test_state_and_screen_come_together():
    env = quiet(observation="both")

    observation = env.reset().observation

    assert ["screen", "state"] == list(observation)
    assert same(quiet().reset().observation, observation["state"])


@pytest.mark.parametrize(
    "game",
    [
        PLE(QuietCatcher()),
        QuietCatcher,
        QuietCatcher(),
        lambda: PLE(QuietCatcher()),
        functools.partial(QuietCatcher, width=12),
    ],
    ids=["PLE", "class", "game", "factory of a PLE", "factory of a game"],
)
def test_a_game_is_taken_in_every_form(game, ple_package):
    env = PLEWrapper(game)

    assert "QuietCatcher" == type(env.ple.game).__name__
    assert env.reset().is_first()


def test_keyword_arguments_make_the_ple(ple_package):
    env = PLEWrapper(
        QuietCatcher, ple_kwargs={"frame_skip": 4, "reward_values": {"tick": 0.5}}
    )
    env.reset()

    assert 2.0 == env.step(0).reward
    assert 4 == env.frame_skip


def test_a_game_that_fixes_its_frames_a_second_gets_them(ple_package):
    class Slow(QuietCatcher):
        def __init__(self):
            super().__init__()
            self.allowed_fps = 15

    assert 15 == PLEWrapper(Slow).ple.fps


def test_keyword_arguments_for_a_ple_that_exists_are_refused(message_of):
    ple = PLE(QuietCatcher())

    assert (
        "PLEWrapper was given a PLE, and ple_kwargs, which are for making one: fps, "
        "rng. Pass them to PLE, or give PLEWrapper the game."
    ) == message_of(
        TypeError, lambda: PLEWrapper(ple, ple_kwargs={"fps": 60, "rng": 1})
    )


@pytest.mark.parametrize(
    ("given", "what"),
    [
        (7, "was given 7 of type int"),
        (None, "was given None"),
        (lambda: 7, "made 7 of type int"),
    ],
)
def test_what_is_no_game_is_refused(given, what, message_of):
    assert (
        f"PLEWrapper {what}, which is neither a PLE nor a game of PLE. "
        "PLEWrapper(Catcher), PLEWrapper(PLE(Catcher())) and "
        "PLEWrapper(lambda: PLE(Catcher())) are all right."
    ) == message_of(TypeError, lambda: PLEWrapper(given))


def test_init_is_called_once_and_each_episode_is_a_reset():
    ple = PLE(QuietCatcher())
    env = PLEWrapper(ple)

    env.reset()
    env.reset()

    assert 2 == ple.inits  # one of them by PLE itself


def test_actions_are_numbered_in_the_order_of_ple():
    env = quiet()

    assert BoundedArraySpec((), np.int64, 0, 2) == env.action_spec()
    assert [ple_games.K_a, ple_games.K_d, None] == env.getActionSet()
    assert 3 == len(env.action_names)


def test_actions_are_called_what_the_keys_are(pygame):
    with drawn() as env:
        assert ("a", "d", "noop") == env.action_names


def test_without_the_noop_there_are_keys_only():
    env = PLEWrapper(PLE(QuietCatcher(), add_noop_action=False))

    assert 1 == env.action_spec().maximum


def test_an_action_of_no_key_is_refused(message_of):
    env = quiet()
    env.reset()

    assert (
        "PLEWrapper.step() was given an action that does not fit its spec.\n\n"
        "  expected   BoundedArraySpec(shape=(), dtype=int64, minimum=0, maximum=2, "
        "name='action')\n"
        "  got        array of shape (), dtype int64, values 3 … 3\n\n"
        "The value 3 is above the maximum 2."
    ) == message_of(SpecError, lambda: env.step(3))


def test_a_game_whose_actions_are_a_list_is_refused(message_of):
    ple = PLE(QuietCatcher())
    ple.game.actions = [97, 100]

    assert (
        "QuietCatcher has its actions in a list of 2 elements; PLE plays games that "
        'have them in a dictionary, such as {"left": K_a}.'
    ) == message_of(TypeError, lambda: PLEWrapper(ple))


def test_a_game_without_actions_is_refused(message_of):
    ple = PLE(QuietCatcher(), add_noop_action=False)
    ple.game.actions = {}

    assert (
        "QuietCatcher has no actions: neither keys, nor the no-op that PLE adds unless "
        "it is made with add_noop_action=False."
    ) == message_of(ValueError, lambda: PLEWrapper(ple))


def test_rewards_are_float32_and_discounts_as_asked():
    env = quiet(discount=0.9)
    first, second = env.reset(), env.step(2)

    assert (0.0, 1.0) == (first.reward, first.discount)
    assert np.float32(0.9) == second.discount
    assert np.float32 == second.reward.dtype


def test_the_end_of_a_game_is_a_termination():
    env = PLEWrapper(PLE(QuietCatcher(lives=1, height=2)), discount=0.9)
    env.seed(1)
    env.reset()
    while not (time_step := env.step(0)).is_last():
        pass

    assert 0.0 == time_step.discount
    assert np.float32(-6) == time_step.reward  # missed, and lost
    assert 0.0 == env.get_info()["lives"]
    assert env.step(0).is_first()


def test_a_seed_counts_from_the_next_reset():
    env = quiet()
    first = env.reset()

    env.seed(7)

    assert same(first, env.current_time_step())
    assert np.random.RandomState(7).randint(12) == env.reset().observation["fruit_x"]
    assert env.ple.rng is env.ple.game.rng


def test_without_a_seed_it_is_that_of_ple():
    fruit = [PLEWrapper(PLE(QuietCatcher(), rng=5)).reset().observation for _ in "ab"]

    rng = np.random.RandomState(5)
    rng.randint(12, size=2)  # the two calls of init()
    assert rng.randint(12) == fruit[0]["fruit_x"] == fruit[1]["fruit_x"]


def test_seeds_of_any_size_do():
    env = quiet()
    env.seed(2**40)

    assert env.reset().is_first()


def test_no_seed_means_a_new_one():
    env = quiet()
    seeds = set()
    for _ in range(20):
        env.seed(None)
        seeds.add(float(env.reset().observation["fruit_x"]))

    assert len(seeds) > 1


def test_a_seed_brings_back_what_a_game_keeps_between_episodes(pygame):
    """Otherwise the bird would begin with the speed that it had in the end."""
    with drawn("FlappyBird") as env:
        env.seed(3)
        first = [env.reset(), *(env.step(1) for _ in range(3))]
        env.reset()
        unseeded = env.current_time_step().observation["player_vel"]

        env.seed(3)
        again = [env.reset(), *(env.step(1) for _ in range(3))]

    assert 0 != unseeded
    assert same(first, again)


@pytest.mark.parametrize("game", ["Catcher", "FlappyBird"])
def test_the_state_of_a_game_with_pictures_comes_back(pygame, game):
    with drawn(game, observation="both") as env:
        env.seed(3)
        env.reset()
        env.step(0)
        token = env.get_state()
        expected = [env.step(index % 2) for index in range(12)]
        picture = env.render()

        env.set_state(token)

        assert same(token.time_step.observation["screen"], env.render())
        assert same(expected, [env.step(index % 2) for index in range(12)])
        assert same(picture, env.render())


def test_a_state_travels_to_another_process(pygame):
    makers = [functools.partial(drawn, "FlappyBird", observation="both")]
    with ParallelPyEnvironment(makers, num_workers=1) as env:
        env.seed(3)
        env.reset()
        env.step(np.array([0]))
        token = env.get_state()
        expected = [env.step(np.array([1])) for _ in range(8)]

    with ParallelPyEnvironment(makers, num_workers=1) as other:
        other.reset()
        other.set_state(token)

        assert same(expected, [other.step(np.array([1])) for _ in range(8)])


def test_a_state_that_cannot_be_saved_says_what_holds_it_up(message_of):
    env = quiet()
    env.ple.game.helper = lambda: 7

    text = message_of(NotImplementedError, env.get_state)

    assert text.startswith(
        "QuietCatcher cannot save its state. A state is all that PLE and the game "
        "hold, and one of these things does not pickle: "
    )
    env.seed(1)
    assert env.reset().is_first()


def test_the_state_of_another_game_is_refused(message_of):
    token = quiet(QuietSnake).get_state()
    env = quiet()

    assert "QuietCatcher was given the state of another game: QuietSnake." == (
        message_of(ValueError, lambda: env.set_state(token))
    )


def test_a_preprocessor_stays_when_a_state_comes_back():
    env = PLEWrapper(
        PLE(QuietCatcher(), state_preprocessor=lambda s: np.float32([*s.values()]))
    )
    env.reset()
    env.set_state(env.get_state())

    assert (4,) == env.step(0).observation.shape


def test_a_game_in_real_time_says_so():
    assert not quiet().realtime
    assert PLEWrapper(PLE(QuietCatcher(), force_fps=False)).realtime


def test_an_episode_in_real_time_begins_now(pygame):
    """However long nobody has played: the pause is no part of the first frame."""
    with drawn() as env:
        env.ple.force_fps = False
        ticks = []

        class Clock:
            def tick(self):
                ticks.append("tick")

        env.ple.game.clock = Clock()

        env.reset()

    assert ["tick"] == ticks


def test_close_can_be_called_twice_and_ends_it():
    env = quiet()
    env.reset()
    env.close()
    env.close()

    for call in (env.reset, lambda: env.step(0), env.render, env.get_info):
        with pytest.raises(ClosedError):
            call()


def test_a_second_game_in_a_process_is_refused(pygame, message_of):
    with drawn():
        text = message_of(RuntimeError, drawn)

    assert (
        "There is a game of PLE in this process already, and pygame has one display "
        "for all of a process: two games would draw over each other and take each "
        "other's keys. Close the first one, or give each game a worker process of its "
        "own: ParallelPyEnvironment([make_game] * 8, num_workers=8)."
    ) == text


def test_closing_makes_room_for_the_next_game(pygame):
    drawn().close()

    assert not pygame.display.get_init()
    drawn("MonsterKong", observation="screen").close()


def test_a_forgotten_game_makes_room_for_the_next(pygame):
    env = drawn()
    env.itself = env
    del env

    drawn().close()


def test_a_game_that_could_not_be_made_does_not_keep_the_display(pygame):
    with pytest.raises(ValueError, match="has no state") as caught:
        drawn("MonsterKong")
    del caught

    drawn().close()


def test_closing_an_earlier_game_leaves_a_later_one_alone(pygame):
    earlier = drawn()
    one_display.give_back(earlier)
    with drawn() as env:
        earlier.close()

        assert env.reset().is_first()


def test_eight_games_have_a_worker_each(pygame):
    with ParallelPyEnvironment([drawn] * 8, num_workers=8) as env:
        env.seed(list(range(8)))
        fruit = env.reset().observation["fruit_x"]

        assert [
            np.random.RandomState(seed).randint(12) for seed in range(8)
        ] == fruit.tolist()
        assert (8,) == env.step(np.zeros(8, np.int64)).reward.shape


def test_two_games_in_one_worker_are_refused(pygame):
    with pytest.raises(ConstructorError, match=r"num_workers=8\)\."):
        ParallelPyEnvironment([drawn] * 8, num_workers=2)


def test_a_state_that_gains_a_part_says_what_to_do(message_of):
    class Gaining(QuietCatcher):
        def getGameState(self):
            more = {"bonus": 1} if self.fruit[1] else {}
            return {**super().getGameState(), **more}

    env = quiet(Gaining)
    env.reset()

    assert message_of(SpecError, lambda: env.step(0)) == (
        "Gaining has shown what does not fit its spec.\n\n"
        "  expected   the structure {'fruit_x': *, 'fruit_y': *, 'player_vel': *, "
        "'player_x': *}\n"
        "  got        a dict of 5 elements\n\n"
        "Key 'bonus' is not in the spec.\n\n"
        "The specs are those of the first state of the game. Where later ones differ, "
        "give PLE a state_preprocessor, which makes an array of the state."
    )


def test_a_game_without_a_state_says_what_to_observe(pygame, message_of):
    assert (
        "MonsterKong has no state to observe, as some games of PLE have none: its "
        'picture is all there is. Pass observation="screen".'
    ) == message_of(ValueError, lambda: drawn("MonsterKong"))


@pytest.mark.parametrize(
    ("kwargs", "text"),
    [
        (
            {"observation": "pixels"},
            'observation is \'pixels\'; it is "state", "screen" or "both".',
        ),
        (
            {"opening_frames": -1},
            "opening_frames is -1 of type int; it is a number of frames, 0 for none.",
        ),
        ({"discount": 2}, "discount is 2; it lies between 0 and 1."),
        (
            {"observation": "screen", "max_lengths": {"a": 1}},
            "PLEWrapper was given max_lengths, which are for lists in the state, and "
            'observation="screen", in which there are none.',
        ),
    ],
)
def test_arguments_of_no_meaning_are_refused(kwargs, text, message_of):
    assert text == message_of(ValueError, lambda: quiet(**kwargs))
