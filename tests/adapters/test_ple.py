"""Games of PLE as environments of envkit; `ple_games` stands in for the library."""

from __future__ import annotations

import functools
import importlib
import pickle
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import envkit
from envkit import ArraySpec, BatchedPyEnvironment, BoundedArraySpec, nest
from envkit.adapters.ple import display
from envkit.adapters.ple import suite as building
from envkit.adapters.ple import suite as suite_ple
from envkit.adapters.ple.suite import (
    PLEWrapper,
    _infer_state,
    _restore_game,
    _save_game,
)
from envkit.adapters.values import Converter
from envkit.errors import (
    ClosedError,
    ConstructorError,
    MissingDependencyError,
    SpecError,
)
from envkit.parallel import ParallelPyEnvironment
from envkit.specs import check_arrays_nest
from envkit.testing import check_environment
from envkit.wrappers import TimeLimit
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


@pytest.mark.parametrize(
    ("game", "observation"),
    [(QuietCatcher, "state"), (QuietCatcher, "both"), (QuietSnake, "screen")],
)
def test_a_game_passes_check_environment(game, observation):
    check_environment(
        lambda: quiet(game, observation=observation), steps=80, require=EVERYTHING
    )


def test_an_endless_game_passes_check_environment():
    features = ["info", "render", "seed", "state"]
    check_environment(lambda: quiet(QuietWaterWorld), steps=60, require=features)


def test_a_batch_of_games_passes_check_environment():
    check_environment(
        lambda: BatchedPyEnvironment([quiet(), quiet()], multithreading=False),
        steps=60,
        require=EVERYTHING,
    )


@pytest.mark.parametrize(
    ("game", "observation"), [("FlappyBird", "state"), ("MonsterKong", "screen")]
)
def test_a_drawn_game_passes_check_environment(game, observation, pygame):
    check_environment(
        lambda: drawn(game, observation=observation), steps=60, require=EVERYTHING
    )


def test_time_steps_match_the_bare_library():
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


def test_pictures_match_the_bare_library(pygame):
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


def test_render_and_gray_pictures_work_with_any_observation(pygame):
    with drawn(observation="screen", grayscale=True) as env:
        env.reset()
        observation = env.step(0).observation
        assert BoundedArraySpec((8, 12), np.uint8, 0, 255) == env.observation_spec()
        assert same(env.ple.getScreenGrayscale().T, observation)
    with drawn() as env:
        env.reset()
        env.step(0)
        assert (8, 12, 3) == env.render().shape
        assert same(env.ple.getScreenRGB().swapaxes(0, 1), env.render())


def test_the_last_picture_shows_the_end_of_the_episode(pygame):
    with drawn(observation="screen") as env:
        first = env.reset().observation
        env.step(0)
        again = env.reset().observation
    assert not first.any()
    assert same(first, again)


def test_opening_frames_are_played_before_the_first_picture(pygame):
    with drawn(observation="both", opening_frames=2) as env:
        observation = env.reset().observation
        assert observation["screen"].any()
        assert 2.0 == observation["state"]["fruit_y"]
        assert 2 == env.get_info()["frame_number"]


def test_state_and_screen_can_be_observed_together():
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
def test_a_game_may_be_an_instance_a_class_or_a_ple(game, ple_package):
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


def test_a_games_allowed_fps_is_used(ple_package):
    class Slow(QuietCatcher):
        def __init__(self):
            super().__init__()
            self.allowed_fps = 15

    assert 15 == PLEWrapper(Slow).ple.fps


def test_init_is_called_once_and_every_episode_begins_with_reset():
    ple = PLE(QuietCatcher())
    env = PLEWrapper(ple)
    env.reset()
    env.reset()
    assert 2 == ple.inits  # one of them by PLE itself


def test_actions_have_the_order_of_ples_keys(pygame):
    env = quiet()
    assert BoundedArraySpec((), np.int64, 0, 2) == env.action_spec()
    assert [ple_games.K_a, ple_games.K_d, None] == env.getActionSet()
    assert 3 == len(env.action_names)
    with drawn() as env:
        assert ("a", "d", "noop") == env.action_names
    keys = PLEWrapper(PLE(QuietCatcher(), add_noop_action=False))
    assert 1 == keys.action_spec().maximum


def test_rewards_are_float32_and_the_discount_is_the_argument():
    env = quiet(discount=0.9)
    first, second = env.reset(), env.step(2)
    assert (0.0, 1.0) == (first.reward, first.discount)
    assert np.float32(0.9) == second.discount
    assert np.float32 == second.reward.dtype


def test_game_over_is_a_termination():
    env = PLEWrapper(PLE(QuietCatcher(lives=1, height=2)), discount=0.9)
    env.seed(1)
    env.reset()
    while not (time_step := env.step(0)).is_last():
        pass

    assert 0.0 == time_step.discount
    assert np.float32(-6) == time_step.reward  # missed, and lost
    assert 0.0 == env.get_info()["lives"]
    assert env.step(0).is_first()


def test_a_seed_takes_effect_at_the_next_reset():
    env = quiet()
    first = env.reset()
    env.seed(7)
    assert same(first, env.current_time_step())
    assert np.random.RandomState(7).randint(12) == env.reset().observation["fruit_x"]
    assert env.ple.rng is env.ple.game.rng
    env.seed(2**40)
    assert env.reset().is_first()
    seeds = set()
    for _ in range(20):
        env.seed(None)
        seeds.add(float(env.reset().observation["fruit_x"]))
    assert len(seeds) > 1


def test_without_a_seed_the_game_keeps_ples_generator():
    fruit = [PLEWrapper(PLE(QuietCatcher(), rng=5)).reset().observation for _ in "ab"]
    rng = np.random.RandomState(5)
    rng.randint(12, size=2)  # the two calls of init()
    assert rng.randint(12) == fruit[0]["fruit_x"] == fruit[1]["fruit_x"]


def test_a_seed_resets_what_a_game_keeps_between_episodes(pygame):
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
def test_a_state_restores_a_game_with_pictures(pygame, game):
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


def test_an_unpicklable_attribute_prevents_saving_the_state(message_of):
    env = quiet()
    env.ple.game.helper = lambda: 7

    text = message_of(NotImplementedError, env.get_state)

    assert text.startswith(
        "QuietCatcher cannot save its state. A state has everything in the "
        "environment and its wrappers, and something there does not pickle: "
    )
    env.seed(1)
    assert env.reset().is_first()


def test_restoring_a_state_keeps_the_preprocessor():
    env = PLEWrapper(
        PLE(QuietCatcher(), state_preprocessor=lambda s: np.float32([*s.values()]))
    )
    env.reset()
    env.set_state(env.get_state())
    assert (4,) == env.step(0).observation.shape


def test_a_real_time_game_is_marked_realtime():
    assert not quiet().realtime
    assert PLEWrapper(PLE(QuietCatcher(), force_fps=False)).realtime


def test_a_real_time_episode_starts_its_clock_at_reset(pygame):
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


def test_a_closed_game_raises_closed_error():
    env = quiet()
    env.reset()
    env.close()
    env.close()
    for call in (env.reset, lambda: env.step(0), env.render, env.get_info):
        with pytest.raises(ClosedError):
            call()


def test_closing_a_game_allows_the_next_one(pygame):
    drawn().close()
    assert not pygame.display.get_init()
    drawn("MonsterKong", observation="screen").close()
    # So does a game that was forgotten, or that could not be made.
    env = drawn()
    env.itself = env
    del env
    drawn().close()
    with pytest.raises(ValueError, match="has no state") as caught:
        drawn("MonsterKong")
    del caught
    drawn().close()


def test_closing_an_earlier_game_leaves_a_later_one_alone(pygame):
    earlier = drawn()
    display.release(earlier.author)
    with drawn() as env:
        earlier.close()
        assert env.reset().is_first()


def test_each_game_runs_in_its_own_worker(pygame):
    with ParallelPyEnvironment([drawn] * 3, num_workers=3) as env:
        env.seed(list(range(3)))
        fruit = env.reset().observation["fruit_x"]
        first = [np.random.RandomState(seed).randint(12) for seed in range(3)]
        assert first == fruit.tolist()
        assert (3,) == env.step(np.zeros(3, np.int64)).reward.shape


def test_two_games_in_one_worker_are_refused(pygame):
    with pytest.raises(ConstructorError, match=r"num_workers=8\)\."):
        ParallelPyEnvironment([drawn] * 8, num_workers=2)


class Gaining(QuietCatcher):
    """Has one part more in its state in the middle of an episode."""

    def getGameState(self):
        more = {"bonus": 1} if self.fruit[1] else {}
        return {**super().getGameState(), **more}


def with_actions(actions, **options):
    ple = PLE(QuietCatcher(), **options)
    ple.game.actions = actions
    return PLEWrapper(ple)


def entered(game=QuietCatcher):
    env = quiet(game)
    env.reset()
    return env


def two_at_once():
    with drawn():
        drawn()


NO_GAME = (
    "which is neither a PLE nor a game of PLE. PLEWrapper(Catcher), "
    "PLEWrapper(PLE(Catcher())) and PLEWrapper(lambda: PLE(Catcher())) all work."
)


@pytest.mark.usefixtures("ple_package", "pygame")
@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (
            lambda: quiet(observation="pixels"),
            ValueError,
            'observation must be "state", "screen" or "both", got \'pixels\'.',
        ),
        (
            lambda: quiet(opening_frames=-1),
            ValueError,
            "opening_frames must be a number of frames, 0 for none, got -1 of type "
            "int.",
        ),
        (
            lambda: quiet(discount=2),
            ValueError,
            "discount must be between 0 and 1, got 2.",
        ),
        (
            lambda: quiet(observation="screen", max_lengths={"a": 1}),
            ValueError,
            "PLEWrapper was given max_lengths, which are for lists in the state, and "
            'observation="screen", in which there are none.',
        ),
        (
            lambda: quiet().render("human"),
            NotImplementedError,
            "PLEWrapper cannot render 'human', only 'rgb_array'. PLE shows a window "
            "if it is made with display_screen=True.",
        ),
        (
            lambda: PLEWrapper(PLE(QuietCatcher()), ple_kwargs={"fps": 60, "rng": 1}),
            TypeError,
            "PLEWrapper was given a PLE, and ple_kwargs, which are for making one: "
            "fps, rng. Pass them to PLE, or give PLEWrapper the game.",
        ),
        (
            lambda: PLEWrapper(7),
            TypeError,
            f"PLEWrapper was given 7 of type int, {NO_GAME}",
        ),
        (lambda: PLEWrapper(None), TypeError, f"PLEWrapper was given None, {NO_GAME}"),
        (
            lambda: PLEWrapper(lambda: 7),
            TypeError,
            f"PLEWrapper made 7 of type int, {NO_GAME}",
        ),
        (
            lambda: entered().step(3),
            SpecError,
            "PLEWrapper.step() was given an action that does not fit its spec.\n\n"
            "  expected   BoundedArraySpec(shape=(), dtype=int64, minimum=0, "
            "maximum=2, name='action')\n"
            "  got        array of shape (), dtype int64, values 3 … 3\n\n"
            "The value 3 is above the maximum 2.",
        ),
        (
            lambda: with_actions([97, 100]),
            TypeError,
            "QuietCatcher has its actions in a list of 2 elements; PLE plays games "
            'that have them in a dictionary, such as {"left": K_a}.',
        ),
        (
            lambda: with_actions({}, add_noop_action=False),
            ValueError,
            "QuietCatcher has no actions: neither keys, nor the no-op that PLE adds "
            "unless it is made with add_noop_action=False.",
        ),
        (
            lambda: quiet().set_state(quiet(QuietSnake).get_state()),
            ValueError,
            "QuietCatcher was given the state of another environment.\n\n"
            "  expected   QuietCatcher in PLE\n"
            "  got        QuietSnake in PLE\n\n"
            "A state fits the same environment in the same wrappers.",
        ),
        (
            lambda: entered(Gaining).step(0),
            SpecError,
            "Gaining has shown what does not fit its spec.\n\n"
            "  expected   the structure {'fruit_x': *, 'fruit_y': *, 'player_vel': *, "
            "'player_x': *}\n"
            "  got        a dict of 5 elements\n\n"
            "Key 'bonus' is not in the spec.\n\n"
            "The specs are those of the first state of the game. If later ones "
            "differ, give the whole shape of a list in max_lengths, or give PLE a "
            "state_preprocessor, which makes an array of the state.",
        ),
        (
            lambda: drawn("MonsterKong"),
            ValueError,
            "MonsterKong has no state to observe, like some games of PLE: it "
            'only has a picture. Pass observation="screen".',
        ),
        (
            two_at_once,
            RuntimeError,
            "There is a game of PLE in this process already, and pygame has one "
            "display for all of a process: two games would draw over each other and "
            "take each other's keys. Close the first one, or give each game a worker "
            "process of its own: ParallelPyEnvironment([make_game] * 8, "
            "num_workers=8).",
        ),
        (
            lambda: suite_ple.load("Cacher"),
            ValueError,
            "PLE has no game named 'Cacher'. Did you mean 'Catcher'? Its games are "
            "Catcher, FlappyBird, MonsterKong, Pixelcopter, Pong, PuckWorld, Snake, "
            "WaterWorld; for your own game, pass its class to PLEWrapper.",
        ),
    ],
)
def test_invalid_arguments_are_refused(call, error, text, message_of):
    assert text == message_of(error, call)


@pytest.mark.usefixtures("ple_package", "pygame")
def test_make_knows_the_scheme():
    with envkit.make("ple:Catcher", private_randomness=False) as env:
        assert isinstance(env, PLEWrapper)
        assert "Catcher" == type(env.game).__name__
        assert env.reset().is_first()


class Lottery(QuietCatcher):
    """Draws from the generators of the whole process."""

    def drop(self):
        drawn = random.randrange(self.width) + np.random.randint(self.width)  # noqa: NPY002  # so
        self.fruit = [drawn % self.width, 0]


def catch(env, seeds):
    """Returns what a row sees in 60 steps."""
    env.seed(seeds)
    columns = [env.step(np.full(np.shape(seeds), 0)) for _ in range(60)]
    return np.array([time_step.observation["fruit_x"] for time_step in columns])


@pytest.mark.usefixtures("ple_package")
@pytest.mark.parametrize("rows", [4, 16])
def test_games_play_in_one_worker_as_they_do_alone(monkeypatch, rows):
    monkeypatch.setattr(suite_ple, "_class_of", lambda name: Lottery)
    constructor = envkit.constructor("ple:Lottery")
    alone = [catch(constructor(), seed) for seed in range(rows)]

    makers = [constructor] * rows
    with ParallelPyEnvironment(makers, num_workers=1, backend="inline") as env:
        together = catch(env, list(range(rows)))

    np.testing.assert_array_equal(np.transpose(alone), together)


@pytest.mark.usefixtures("ple_package", "pygame")
def test_a_constructor_pickles_and_works_in_a_worker():
    constructor = envkit.constructor("ple:Catcher", discount=0.5)
    assert constructor == pickle.loads(pickle.dumps(constructor))
    with ParallelPyEnvironment([constructor], num_workers=1) as env:
        env.reset()
        assert [0.5] == env.step(np.zeros(1, np.int64)).discount.tolist()


@pytest.mark.usefixtures("ple_package")
def test_keyword_arguments_go_to_the_game_to_ple_and_to_the_wrapper():
    env = suite_ple.load(
        "QuietCatcher",
        game_kwargs={"lives": 9},
        ple_kwargs={"frame_skip": 3},
        state_dtype=np.float32,
    )
    assert 9.0 == env.get_info()["lives"]
    assert 3 == env.frame_skip
    assert np.float32 == env.reset().observation["fruit_x"].dtype


@pytest.mark.usefixtures("ple_package")
def test_episodes_can_be_limited_and_environments_wrapped():
    class Named(envkit.wrappers.PyEnvironmentBaseWrapper):
        pass

    env = suite_ple.load("QuietCatcher", max_episode_steps=2, env_wrappers=[Named])

    assert isinstance(env, Named)
    assert isinstance(env.wrapped_env(), TimeLimit)
    assert [0, 1, 2, 0] == [int(env.step(0).step_type) for _ in range(4)]
    assert 1.0 == env.current_time_step().discount


@pytest.mark.usefixtures("ple_package", "pygame")
def test_a_game_without_a_state_observes_its_screen():
    with suite_ple.load("MonsterKong") as env:
        assert (6, 10, 3) == env.observation_spec().shape


@pytest.mark.usefixtures("ple_package")
def test_a_games_own_import_error_is_raised():
    with pytest.raises(ModuleNotFoundError, match="no_such_library"):
        suite_ple.load("Broken")


@pytest.mark.usefixtures("ple_package")
def test_ples_remark_about_doom_is_suppressed(capsys):
    suite_ple.load("QuietCatcher")
    with pytest.raises(TypeError, match="neither a PLE nor a game"):
        suite_ple.load("Loud")
    assert "A game of my own.\n" == capsys.readouterr().out


def without(monkeypatch, package):
    """Lets a package seem to be missing."""
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name, *rest: None if name == package else find(name, *rest),
    )


@pytest.mark.usefixtures("pygame")
def test_without_ple_the_error_says_where_to_get_it(monkeypatch, message_of):
    without(monkeypatch, "ple")
    assert (
        "The environment 'ple:Catcher' needs PLE, which is not installed, and which no "
        "package registry has. Clone github.com/ntasfi/PyGame-Learning-Environment and "
        'install that folder: pip install "pillow>=10" "pygame-ce>=2.5" -e '
        "PyGame-Learning-Environment"
    ) == message_of(MissingDependencyError, lambda: envkit.make("ple:Catcher"))


@pytest.mark.usefixtures("ple_package")
def test_without_pygame_the_error_says_what_to_install(monkeypatch, message_of):
    without(monkeypatch, "pygame")
    assert (
        "PLEWrapper needs the package pygame, which is not installed. "
        'pip install "pygame-ce>=2.5" "pillow>=10"'
    ) == message_of(MissingDependencyError, lambda: building.require_ple("PLEWrapper"))


def real(test):
    """Marks a test of the real games, which are of the days of Python 2 and NumPy 1."""
    for mark in (
        pytest.mark.parametrize("name", suite_ple.GAMES),
        pytest.mark.slow,
        pytest.mark.filterwarnings("ignore::DeprecationWarning"),
        pytest.mark.filterwarnings("ignore::SyntaxWarning"),
    ):
        test = mark(test)
    return test


@real
def test_a_real_game_passes_check_environment(name, ple_checkout, pygame):
    report = check_environment(f"ple:{name}", steps=200, require=["info", "seed"])
    assert () == report.failed


@real
def test_a_real_game_matches_the_bare_library(name, ple_checkout, pygame):
    with suite_ple.load(name, observation="screen") as env:
        keys, actions = env.getActionSet(), []
        env.seed(7)
        shown = [env.reset().observation]
        rewards = []
        while len(actions) < 100 and not env.current_time_step().is_last():
            actions.append(int(np.random.default_rng(len(actions)).integers(len(keys))))
            time_step = env.step(actions[-1])
            shown.append(time_step.observation)
            rewards.append(float(time_step.reward))
    module = importlib.import_module(f"ple.games.{name.lower()}")
    bare = importlib.import_module("ple").PLE(getattr(module, name)())
    bare.init()
    bare.rng = bare.game.rng = np.random.RandomState(7)
    bare.reset_game()
    pictures = [bare.getScreenRGB().swapaxes(0, 1)]
    bare_rewards = []
    for action in actions:
        bare_rewards.append(float(np.float32(bare.act(keys[action]))))
        pictures.append(bare.getScreenRGB().swapaxes(0, 1))

    assert bare_rewards == rewards
    assert all(np.array_equal(*pair) for pair in zip(pictures, shown, strict=True))


@real
def test_real_games_play_the_same_beside_other_draws(name, ple_checkout, pygame):
    def stream():
        with envkit.make(f"ple:{name}") as env:
            env.reset(seed=5)
            for _ in range(40):
                random.random()
                np.random.random()  # noqa: NPY002  # the global one
                yield env.step(0)

    one, other = list(stream()), list(stream())
    assert all(map(same, one, other))


@real
def test_real_games_run_in_workers(name, ple_checkout, pygame):
    maker = functools.partial(suite_ple.load, name)
    with ParallelPyEnvironment([maker] * 2, num_workers=2) as env:
        env.seed([3, 3])
        env.reset()
        for _ in range(20):
            time_step = env.step(np.zeros(2, np.int64))

        leaves = nest.flatten(time_step)
        assert all(np.array_equal(leaf[0], leaf[1]) for leaf in leaves)


def reader(state, *, dtype=np.float64, **max_lengths):
    """Returns the specs of a state, and what reads states like it."""
    found = _infer_state(state, name="Snake", dtype=dtype, max_lengths=max_lengths)
    convert = Converter(
        found.spec, found.leaves, subject="Snake has shown what", root="observation"
    )
    return found.spec, convert


def length_up_to(room: int) -> BoundedArraySpec:
    return BoundedArraySpec((), np.int64, 0, room)


def test_numbers_of_all_types_become_float64():
    state = {"b": np.float32(2.5), "a": 3, "d": True, "c": np.int64(4)}
    spec, read = reader(state)
    assert ["a", "b", "c", "d"] == list(spec) == list(read(state))
    assert dict.fromkeys("abcd", ArraySpec((), np.float64)) == spec
    assert [3.0, 2.5, 4.0, 1.0] == [value.item() for value in read(state).values()]


def test_an_integer_may_later_be_a_float():
    _, read = reader({"speed": 0})
    assert 0.5 == read({"speed": 0.5})["speed"]


def test_numbers_can_be_float32():
    spec, read = reader({"speed": 0.1, "body": [0.2]}, dtype=np.float32)
    assert ArraySpec((), np.float32) == spec["speed"]
    assert np.float32(0.1) == read({"speed": 0.1, "body": []})["speed"]
    assert np.float32 == spec["body"]["values"].dtype


def test_an_array_keeps_its_dtype_and_belongs_to_the_caller():
    board = np.zeros((2, 3), np.int8)
    spec, read = reader(board)
    copied = read(board)
    board[:] = 7
    assert ArraySpec((2, 3), np.int8) == spec
    assert not copied.any()


def test_a_tuple_of_numbers_is_an_array():
    spec, read = reader({"position": (1, 2.5)})
    assert ArraySpec((2,), np.float64) == spec["position"]
    assert [3.0, 4.0] == read({"position": (3, 4)})["position"].tolist()


@pytest.mark.parametrize(("present", "room"), [(0, 100), (3, 100), (30, 120)])
def test_a_list_has_room_to_grow(present, room):
    spec, _ = reader({"body": [1.0] * present})
    assert {
        "length": length_up_to(room),
        "values": ArraySpec((room,), np.float64),
    } == spec["body"]


def test_a_list_is_padded_with_zeros_and_has_a_length():
    _, read = reader({"body": [1.0]}, body=4)
    body = read({"body": [1, 2.5]})["body"]
    assert 2 == body["length"]
    assert [1.0, 2.5, 0.0, 0.0] == body["values"].tolist()
    spec, read = reader({"creeps": [[1.0, 2.0]]}, creeps=3)
    assert ArraySpec((3, 2), np.float64) == spec["creeps"]["values"]
    creeps = read({"creeps": [[1, 2], [3, 4]]})["creeps"]
    assert [[1, 2], [3, 4], [0, 0]] == creeps["values"].tolist()
    assert 0 == read({"creeps": []})["creeps"]["length"]


def test_an_empty_list_takes_the_element_shape_of_its_neighbours():
    spec, _ = reader({"creep_pos": {"GOOD": [[1.0, 2.0]], "BAD": []}})
    assert (100, 2) == spec["creep_pos"]["BAD"]["values"].shape


def test_neighbours_of_different_shapes_do_not_decide_an_empty_list():
    spec, _ = reader({"all": {"a": [[1.0, 2.0]], "b": [1.0], "c": []}})
    assert (100,) == spec["all"]["c"]["values"].shape


@pytest.mark.parametrize(
    "said",
    [
        {"creep_pos": (5, 2)},
        {"creep_pos/BAD": (5, 2), "creep_pos/GOOD": 5},
        {"creep_pos/BAD": (5, 2), "creep_pos": (5, 2)},
    ],
)
def test_max_lengths_apply_to_a_list_or_to_all_below_a_key(said):
    found = _infer_state(
        {"creep_pos": {"GOOD": [[1.0, 2.0]], "BAD": []}},
        name="WaterWorld",
        dtype=np.float64,
        max_lengths=said,
    )

    shapes = {
        key: part["values"].shape for key, part in found.spec["creep_pos"].items()
    }
    assert {"BAD": (5, 2), "GOOD": (5, 2)} == shapes


def test_a_list_of_fixed_length_is_an_array():
    spec, read = reader({"body": [1.0, 2.0]}, body=None)
    assert ArraySpec((2,), np.float64) == spec["body"]
    with pytest.raises(
        SpecError, match=r"does not fit its spec at observation\['body'"
    ):
        read({"body": [1.0]})


@given(st.lists(st.floats(allow_nan=False, width=64), max_size=20))
def test_padding_keeps_the_elements_of_a_list(elements):
    spec, read = reader({"body": [1.0]}, body=20)
    observation = read({"body": elements})
    body = observation["body"]
    assert check_arrays_nest(observation, spec)
    assert elements == body["values"][: body["length"]].tolist()
    assert not body["values"][len(elements) :].any()


@pytest.mark.parametrize(
    ("first", "rooms", "later", "text"),
    [
        (
            {"body": [1.0]},
            {"body": 3},
            {"body": [0.0] * 4},
            "4 elements at observation['body'], where there is room for 3. Make room "
            "with max_lengths = {'body': 6}.",
        ),
        (
            {"all": {"body": [[1.0, 2.0]]}},
            {"all": 1},
            {"all": {"body": [[0.0, 0.0]] * 2}},
            "2 elements at observation['all']['body'], where there is room for 1. Make "
            "room with max_lengths = {'body': 2}.",
        ),
    ],
)
def test_a_list_that_is_too_long_names_the_option(
    first, rooms, later, text, message_of
):
    _, read = reader(first, **rooms)
    assert f"Snake returned a list of {text}" == message_of(
        SpecError, lambda: read(later)
    )


def test_max_lengths_accepts_the_last_key_of_a_list():
    spec, _ = reader({"all": {"body": [[1.0, 2.0]]}}, body=2)
    assert (2, 2) == spec["all"]["body"]["values"].shape


def test_max_lengths_apply_to_lists_beside_the_screen():
    env = quiet(QuietSnake, observation="both", max_lengths={"snake_body": 7})
    assert (7,) == env.observation_spec()["state"]["snake_body"]["values"].shape[:1]
    assert env.reset().observation["state"]["snake_body"]["length"] > 0


@pytest.mark.parametrize("value", [[[1.0, 2.0]], [1.0, [2.0]], ["a"], [None]])
def test_elements_of_another_shape_are_refused(value):
    _, read = reader({"creeps": [1.0]})
    with pytest.raises(SpecError, match="Snake returned an element of a list that"):
        read({"creeps": value})


def test_a_number_in_place_of_a_list_is_refused():
    _, read = reader({"body": [1.0]})
    with pytest.raises(SpecError, match="where it returned a list before"):
        read({"body": 1.0})


@pytest.mark.parametrize("state", [{}, {"body": [], "more": 1}])
def test_a_state_of_another_structure_is_refused(state):
    _, read = reader({"body": [1.0]})
    with pytest.raises(SpecError, match="Snake has shown what does not fit its spec"):
        read(state)


@pytest.mark.parametrize(
    ("state", "text"),
    [
        ({"name": "x"}, "the string 'x' at 'name'"),
        ({"a": {"b": None}}, "None at 'a/b'"),
        ("x", "the string 'x'"),
    ],
)
def test_a_state_without_numbers_is_refused(state, text, message_of):
    assert (
        f"Snake has a state with {text}, which is not made of numbers. Give PLE a "
        "state_preprocessor, which makes an array of the state, or observe the "
        '"screen".'
    ) == message_of(SpecError, lambda: reader(state))


def test_a_ragged_list_is_refused():
    with pytest.raises(SpecError, match="at 'rows', which is not made of numbers"):
        reader({"rows": [[1.0], [1.0, 2.0]]})


def test_max_lengths_of_unknown_lists_are_refused(message_of):
    assert (
        "max_lengths has 'tail', and there is no list of that name in the state of "
        "Snake. Its lists are: 'a/b', 'body'."
    ) == message_of(
        ValueError, lambda: reader({"body": [], "x": 1, "a": {"b": []}}, tail=3)
    )


@pytest.mark.parametrize("length", [0, -1, 2.5, "3", (), (3, 0)])
def test_invalid_max_lengths_are_refused(length, message_of):
    assert (
        "max_lengths['body'] must be a number of elements, a shape, or None for a list "
        f"that always has the same length, got {length!r}."
    ) == message_of(ValueError, lambda: reader({"body": []}, body=length))


def test_surfaces_survive_pickling(pygame):
    ple = make_ple("Catcher")
    sheet = pygame.Surface((6, 4))
    sheet.fill((9, 8, 7))
    sheet.set_colorkey((1, 2, 3))
    indexed = pygame.Surface((3, 3), depth=8)
    indexed.set_palette([(i, 0, 255 - i) for i in range(256)])
    indexed.fill(77)
    faint = pygame.Surface((2, 2))
    faint.set_alpha(40)
    images = [sheet, sheet.subsurface((1, 1, 2, 2)), indexed, faint]
    ple.game.images = images
    before = [pygame.image.tobytes(image, "RGBA") for image in images]

    saved = _save_game(ple, "beside")
    sheet.fill((0, 0, 0))

    assert "beside" == _restore_game(ple, saved)
    after = ple.game.images
    assert before == [pygame.image.tobytes(image, "RGBA") for image in after]
    assert (1, 2, 3, 255) == after[0].get_colorkey()
    assert 40 == after[3].get_alpha()
    assert ple.game.screen is pygame.display.get_surface()
    assert ple.game.clock is not None
