"""An environment of PySC2 keeps envkit's contract, in every format."""

from __future__ import annotations

import functools

import numpy as np
import pytest

pytest.importorskip("pysc2", reason="pysc2 is not installed")

from envkit import ArraySpec, BatchedPyEnvironment, BoundedArraySpec
from envkit.adapters import PySC2Wrapper
from envkit.adapters.pysc2 import prepare
from envkit.adapters.pysc2.actions import Function
from envkit.errors import CallOrderError, ClosedError, SpecError
from envkit.parallel import ParallelPyEnvironment
from envkit.specs import sample_spec_nest
from envkit.specs.special import ObjectSpec
from envkit.testing import check_environment
from tests.adapters.pysc2_games import (
    FORMATS,
    game,
    legal_action,
    make_all,
    make_mock,
    mock,
    plain,
)

KINDS = ("feature", "rgb", "raw")


def rng():
    return np.random.default_rng(0)


def idle(env):
    """Returns an action that does nothing."""
    return {
        name: np.asarray(leaf.minimum).astype(leaf.dtype) * np.ones(leaf.shape, "int32")
        for name, leaf in env.action_spec().items()
    }


def same(theirs, ours):
    """Says whether an observation is that of PySC2, digit by digit."""
    for name, value in plain(theirs).items():
        if isinstance(value, str):
            assert value == ours[name]
            continue
        length = ours.get(f"{name}_length")
        mine = ours[name] if length is None else ours[name][: int(length)]
        assert value.dtype == mine.dtype
        assert value.size == mine.size
        assert value.tobytes() == mine.tobytes()
    return True


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_every_format_passes_check_environment(kind):
    make = functools.partial(make_mock, kind)
    assert () == check_environment(make, steps=40, require=["episodes", "info"]).failed


@pytest.mark.slow
def test_object_observations_pass_check_environment():
    make = functools.partial(make_mock, "raw", actions="passthrough", variable="object")
    assert () == check_environment(make, steps=40, require=["episodes"]).failed


@pytest.mark.slow
def test_two_agents_pass_check_environment():
    make = functools.partial(make_all, "feature", "raw")
    assert () == check_environment(make, steps=40, require=["episodes"]).failed


@pytest.mark.slow
def test_a_batch_passes_check_environment():
    def make():
        return BatchedPyEnvironment([make_mock("rgb"), make_mock("rgb")])

    assert () == check_environment(make, steps=40, require=["masked_reset"]).failed


@pytest.mark.slow
@pytest.mark.parametrize(
    "make",
    [
        functools.partial(make_all, "feature", "rgb"),
        functools.partial(
            make_all, "feature", "raw", actions="passthrough", variable="object"
        ),
    ],
    ids=["numbers", "objects"],
)
def test_worker_processes_return_the_same_stream(make):
    with ParallelPyEnvironment([make] * 2) as env, make() as alone:
        action = sample_spec_nest(env.action_spec(), rng(), (2,))
        first, single = env.reset(), alone.reset()
        second = env.step(action)
        assert as_bytes(single.observation) == as_bytes(first.observation, 1)
        assert as_bytes(single.observation) == as_bytes(second.observation, 0)
        assert (2, 2) == second.reward.shape


def as_bytes(nested, row=None):
    """Returns all arrays of an observation as bytes, those in objects too."""
    if isinstance(nested, tuple):
        return [as_bytes(part, row) for part in nested]
    leaves = {}
    for name, array in nested.items():
        leaf = array if row is None else array[row, ...]
        leaves[name] = (leaf[()] if leaf.dtype == object else leaf).tobytes()
        assert type(array) is np.ndarray
    return leaves


@pytest.mark.parametrize("kind", KINDS)
def test_time_steps_match_the_bare_game(kind):
    bare, env = game(kind), PySC2Wrapper(game(kind))
    from pysc2.lib import actions

    functions = actions.RAW_FUNCTIONS if kind == "raw" else actions.FUNCTIONS
    draws = rng()
    (theirs,), ours = bare.reset(), env.reset()
    for _ in range(14):
        assert same(theirs.observation, ours.observation)
        action = legal_action(env, ours.observation, draws)
        if theirs.last():
            (theirs,), ours = bare.reset(), env.step(action)
            continue
        function = functions[int(action["function"])]
        arguments = [np.ravel(action[each.name]).tolist() for each in function.args]
        if "unit_tags" in [each.name for each in function.args]:
            index = [each.name for each in function.args].index("unit_tags")
            del arguments[index][int(action["unit_tags_length"]) :]
        (theirs,) = bare.step([actions.FunctionCall(function.id, arguments)])
        ours = env.step(action)

        assert (int(theirs.step_type), theirs.reward, theirs.discount) == (
            int(ours.step_type),
            float(ours.reward),
            float(ours.discount),
        )

    assert bare.told == env.pysc2.told


@pytest.mark.parametrize("kind", KINDS)
def test_the_game_accepts_every_function(kind):
    env = PySC2Wrapper(game(kind))
    draws = rng()
    env.reset()
    (features,) = env.pysc2._features

    for number in range(len(env.functions)):
        action = sample_spec_nest(env.action_spec(), draws)
        action["function"] = np.array(number, np.int32)
        (side,) = env._sides
        call = side.act(action, {}, env._make_call)
        features.transform_action(None, call, skip_available=True)


def test_points_of_actions_are_x_and_y_and_pictures_are_rows_and_columns():
    env = PySC2Wrapper(game())
    observation = env.reset().observation
    (side,) = env._sides
    action = idle(env) | {"function": np.array(331, np.int32)}
    action["screen"] = np.array([31, 23], np.int32)
    (features,) = env.pysc2._features
    message = features.transform_action(
        None, side.act(action, {}, env._make_call), skip_available=True
    )

    point = message.action_feature_layer.unit_command.target_screen_coord
    assert (31, 23) == (point.x, point.y)
    assert [31, 23] == env.action_spec()["screen"].maximum.tolist()
    assert (27, 24, 32) == observation["feature_screen"].shape


@pytest.mark.parametrize(("out_of_time", "discount"), [(False, 0.0), (True, 1.0)])
def test_the_last_discount_tells_a_decided_game_from_a_timeout(out_of_time, discount):
    env = PySC2Wrapper(game(out_of_time=out_of_time))
    time_step = env.reset()
    assert time_step.is_first()
    assert (0.0, 1.0) == (time_step.reward, time_step.discount)
    assert np.float32 == time_step.reward.dtype == time_step.discount.dtype
    while not time_step.is_last():
        time_step = env.step(idle(env))
    assert discount == time_step.discount
    # The step after it begins a game and ignores the action.
    told = len(env.pysc2.told)
    assert env.step(idle(env)).is_first()
    assert told == len(env.pysc2.told)


def test_observations_can_be_chosen_and_are_copies():
    chosen = ["feature_screen", "action_mask"]
    env = PySC2Wrapper(game(), observations=chosen)
    assert chosen == list(env.observation_spec())
    observation = env.reset().observation
    assert chosen == list(observation)
    before = observation["feature_screen"].copy()
    env.step(idle(env))
    assert before.tobytes() == observation["feature_screen"].tobytes()


def test_the_mask_is_true_for_available_functions():
    env = PySC2Wrapper(game())
    observation = env.reset().observation
    count = int(observation["available_actions_length"])
    ids = observation["available_actions"][:count]
    assert ArraySpec((573,), np.bool_) == env.observation_spec()["action_mask"]
    assert sorted(ids) == np.flatnonzero(observation["action_mask"]).tolist()


def test_functions_have_names_and_arguments():
    env = PySC2Wrapper(game())
    assert 573 == len(env.functions)
    assert Function("Move_screen", ("queued", "screen")) == env.functions[331]


def test_raw_actions_name_units_by_index_in_the_observation():
    env = PySC2Wrapper(game("raw"), max_lengths={"raw_units": 40})
    env.reset()
    spec = env.action_spec()
    action = idle(env)
    action["function"] = np.array(2, np.int32)
    action["unit_tags"] = np.arange(30, dtype=np.int32)
    action["unit_tags_length"] = np.array(3, np.int32)
    env.step(action)

    assert BoundedArraySpec((30,), np.int32, 0, 39) == spec["unit_tags"]
    assert BoundedArraySpec((), np.int32, 1, 30) == spec["unit_tags_length"]
    assert BoundedArraySpec((), np.int32, 0, 39) == spec["target_unit_tag"]
    assert [0, 1, 2] == env.pysc2.told[-1][0].arguments[1]


def test_an_unavailable_function_is_refused_with_a_list_of_available_ones(message_of):
    env = make_mock(illegal="raise")
    env.reset()

    assert (
        "Function 331/Move_screen cannot be called now. The available ones are "
        "0/no_op, 1/move_camera, 2/select_point, 3/select_rect, "
        "4/select_control_group, 6/select_idle_worker, 7/select_army, "
        "451/Smart_screen, 452/Smart_minimap. "
        'Choose among them with the observation\'s "action_mask", or pass '
        'illegal="noop".'
    ) == message_of(
        ValueError, lambda: env.step(idle(env) | {"function": np.array(331, np.int32)})
    )


@pytest.mark.parametrize(("illegal", "passed"), [("noop", False), ("pass", True)])
def test_an_unavailable_function_can_become_a_no_op_or_be_passed_on(illegal, passed):
    env = PySC2Wrapper(game(), illegal=illegal)
    mask = env.reset().observation["action_mask"]
    number = int(np.flatnonzero(~mask)[0])
    env.step(idle(env) | {"function": np.array(number, np.int32)})
    assert (number if passed else 0) == env.pysc2.told[0][0].function


def test_an_invalid_argument_is_explained(message_of):
    env = PySC2Wrapper(game())
    env.reset()

    assert (
        "PySC2Wrapper.step() was given an action that does not fit its spec at "
        "action['screen'].\n\n"
        "  expected   BoundedArraySpec(shape=(2,), dtype=int32, minimum=0, "
        "maximum=[31, 23], name='screen')\n"
        "  got        array of shape (2,), dtype int32, values 3 … 24\n\n"
        "1 of 2 elements is above the maximum 23: 24 at index (1,). The other 13 "
        "leaves fit."
    ) == message_of(
        SpecError, lambda: env.step(idle(env) | {"screen": np.array([3, 24], np.int32)})
    )


@pytest.mark.parametrize("wrap", [ObjectSpec.wrap, lambda value: value])
def test_calls_of_pysc2_are_passed_through(wrap):
    env = PySC2Wrapper(game(), actions="passthrough")
    from pysc2.lib.actions import FUNCTIONS, FunctionCall

    move = FUNCTIONS.Move_screen("now", [23, 10])
    for value in (move, [move, move], (331, [[0], [23, 10]])):
        env.reset()
        env.step(wrap(value))

    assert [[move], [[move, move]], [FunctionCall(331, [[0], [23, 10]])]] == (
        env.pysc2.told
    )


def test_messages_of_the_game_are_passed_through():
    env = PySC2Wrapper(game(), actions="passthrough")
    from s2clientprotocol import sc2api_pb2

    env.reset()
    env.step(ObjectSpec.wrap(sc2api_pb2.Action()))
    assert [[sc2api_pb2.Action()]] == env.pysc2.told


def test_a_value_other_than_a_call_is_refused(message_of):
    env = PySC2Wrapper(game(), actions="passthrough")
    env.reset()

    assert (
        "PySC2Wrapper.step() was given an action that does not fit its spec.\n\n"
        "  expected   a FunctionCall, a pair (function, arguments), a message, or a "
        "list of these\n"
        "  got        331 of type int\n\n"
        "A FunctionCall is made by pysc2.lib.actions, for example "
        "FUNCTIONS.Move_screen('now', [23, 38])."
    ) == message_of(SpecError, lambda: env.step(331))


@pytest.mark.parametrize("actions", ["structured", "passthrough"])
def test_agents_can_observe_messages(actions):
    prepare()
    from s2clientprotocol import sc2api_pb2

    options = sc2api_pb2.InterfaceOptions(raw=True)
    with_messages = mock(agent_interface_format=options)
    answer = sc2api_pb2.ResponseObservation()
    answer.observation.game_loop = 7
    with_messages.next_timestep = [
        with_messages.next_timestep[0]._replace(observation=answer)
    ]
    env = PySC2Wrapper(with_messages, actions=actions)
    env.reset()
    time_step = env.step(ObjectSpec.wrap([sc2api_pb2.Action()]))

    assert env.observation_spec().check_array(time_step.observation)
    assert answer == time_step.observation[()]
    assert {"game_loop": 7, "score": 0} == env.get_info()
    assert () == env.functions


def test_time_steps_have_a_part_for_every_agent():
    env = PySC2Wrapper(game(["feature", "raw"]), agents="all")
    time_step = env.reset()
    acted = env.step(
        tuple(
            sample_spec_nest(env.action_spec(), rng())[i]
            | {"function": np.array(0, np.int32)}
            for i in range(2)
        )
    )

    assert ArraySpec((2,), np.float32) == env.reward_spec()
    assert [0.0, 0.0] == time_step.reward.tolist()
    assert 2 == len(set(acted.reward.tolist()))
    assert ((), ()) == (time_step.step_type.shape, acted.discount.shape)
    assert ["feature_units", "raw_units"] == [
        next(name for name in seen if name.endswith("_units"))
        for seen in acted.observation
    ]


def test_an_action_for_all_agents_needs_a_part_for_each(message_of):
    env = PySC2Wrapper(game(players=2), agents="all")
    env.reset()
    one = sample_spec_nest(env.action_spec(), rng())[0]
    assert (
        "PySC2Wrapper.step() was given an action that does not fit its spec.\n\n"
        "  expected   a tuple of 2 actions\n"
        "  got        a tuple of 1 element\n\n"
        "There is one action for each agent."
    ) == message_of(SpecError, lambda: env.step((one,)))


def test_an_error_in_the_second_agents_action_names_its_path():
    env = PySC2Wrapper(game(players=2), agents="all", illegal="noop")
    env.reset()
    one, other = sample_spec_nest(env.action_spec(), rng())
    other["queued"] = np.array(2, np.int32)
    with pytest.raises(SpecError, match="does not fit") as caught:
        env.step((one, other))
    assert "action[1]['queued']" == caught.value.path


def test_by_default_the_other_agents_do_nothing():
    env = PySC2Wrapper(game(players=2))
    env.reset()
    time_step = env.step(idle(env))
    assert () == time_step.reward.shape
    assert (0, []) == tuple(env.pysc2.told[0][1])


def test_a_function_can_choose_the_actions_of_the_other_agents():
    seen = []

    def other(time_step):
        seen.append(time_step.observation.feature_screen.player_relative.shape)
        return (1, [[3, 4]])

    env = PySC2Wrapper(game(players=2), others=other)
    env.reset()
    env.step(idle(env))

    assert [(24, 32)] == seen
    assert (1, [[3, 4]]) == env.pysc2.told[0][1]


def test_agents_whose_games_do_not_end_together_are_refused(message_of):
    bare = game(players=2)
    env = PySC2Wrapper(bare, agents="all")
    first, second = bare.reset()
    bare.step = lambda actions: [first, second._replace(step_type=2)]
    bare.reset = lambda: bare.step([])
    assert (
        "Game.reset() returned time steps of which only some end; an "
        "environment of PySC2 returns a time step for each of its agents, here 2."
    ) == message_of(SpecError, env.reset)


@pytest.mark.parametrize(
    ("answer", "what"),
    [(None, "None"), ([], "0 time steps"), ([3], "a list of 1 element")],
)
def test_a_result_other_than_time_steps_is_refused(answer, what, message_of):
    bare = game()
    env = PySC2Wrapper(bare)
    bare.reset = lambda: answer
    assert (
        f"Game.reset() returned {what}; an environment of PySC2 returns a time step "
        "for each of its agents, here 1."
    ) == message_of(SpecError, env.reset)


def test_too_many_units_are_refused(message_of):
    env = PySC2Wrapper(mock_with_units(3), max_lengths={"feature_units": 2})
    assert (
        "SC2TestEnv returned an observation that does not fit its spec at "
        "observation['feature_units'].\n\n"
        "  expected   ArraySpec(shape=(2, 46), dtype=int64, name='feature_units')\n"
        "  got        array of shape (3, 46), dtype int64, values 0 … 0\n\n"
        "It has a length of 3, and there is room for 2. Pass "
        "max_lengths={'feature_units': 3}, or more."
    ) == message_of(SpecError, env.reset)


def mock_with_units(count):
    prepare()
    from pysc2.lib import features

    env = mock(
        agent_interface_format=features.parse_agent_interface_format(
            **FORMATS["feature"]
        )
    )
    units = np.zeros((count, 46), np.int64)
    env.next_timestep[0].observation["feature_units"] = units
    return env


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (
            {"agents": "both"},
            ValueError,
            "agents must be one of 'first', 'all', got 'both'.",
        ),
        (
            {"observations": ["player", "feature_scren"]},
            ValueError,
            "observations has 'feature_scren', which PySC2 does not observe here. "
            "There are action_mask, action_result, alerts, available_actions, "
            "away_race_requested, build_queue, cargo, cargo_slots_available, "
            "control_groups, game_loop, home_race_requested, last_actions, map_name, "
            "multi_select, player, production_queue, rgb_minimap, rgb_screen, "
            "score_by_category, score_by_vital, score_cumulative, single_select, "
            "upgrades.",
        ),
        (
            {"observations": "player"},
            TypeError,
            "observations must be a list of names, got the string 'player': pass "
            "['player'].",
        ),
    ],
)
def test_unknown_options_are_refused(options, error, message, message_of):
    assert message == message_of(error, lambda: PySC2Wrapper(game("rgb"), **options))


@pytest.mark.parametrize(
    ("env", "message"),
    [
        (
            7,
            "PySC2Wrapper was given 7 of type int, which is neither an environment of "
            "PySC2 nor a function that makes one.",
        ),
        (
            lambda: 7,
            "PySC2Wrapper was given a function that returned 7 of type int, which is "
            "not an environment of PySC2.",
        ),
    ],
)
def test_an_object_other_than_an_environment_is_refused(env, message, message_of):
    assert message == message_of(TypeError, lambda: PySC2Wrapper(env))


def test_a_seed_makes_a_new_game_at_the_next_reset():
    env = PySC2Wrapper(game)
    old = env.pysc2
    env.seed([11])
    closed_before = old.closed
    env.reset()
    env.reset()
    assert (0, 1) == (closed_before, old.closed)
    assert 11 == env.pysc2.random_seed


def test_equal_seeds_give_equal_games():
    def rewards(seed):
        env = PySC2Wrapper(game)
        env.seed(seed)
        env.reset()
        return [float(env.step(idle(env)).reward) for _ in range(12)]

    assert rewards(3) == rewards(3)
    assert rewards(3) != rewards(4)


def test_seed_none_draws_a_new_seed():
    env = PySC2Wrapper(game)
    seeds = set()
    for _ in range(3):
        env.seed(None)
        env.reset()
        seeds.add(env.pysc2.random_seed)
    assert 3 == len(seeds)


@pytest.mark.parametrize("make", [lambda: game(), game])
def test_an_existing_environment_cannot_be_seeded(make, message_of):
    env = PySC2Wrapper(make() if make is game else make)
    assert (
        "Game cannot be seeded: PySC2 takes a seed when an environment is made. Give "
        "PySC2Wrapper a function that takes random_seed, such as "
        "functools.partial(SC2Env, map_name=...)."
    ) == message_of(NotImplementedError, lambda: env.seed(3))


def test_a_game_has_no_state(message_of):
    env = PySC2Wrapper(game())
    env.reset()
    assert (
        "Game cannot save its state: StarCraft II cannot restore a game. "
        "save_replay(folder) saves a replay to watch."
    ) == message_of(NotImplementedError, env.get_state)


def test_step_mul_chooses_the_game_steps_per_step():
    usual, own = PySC2Wrapper(game()), PySC2Wrapper(game(), step_mul=3)
    for env in (usual, own):
        env.reset()
        env.step(idle(env))
    assert ([None], [3]) == (usual.pysc2.step_muls, own.pysc2.step_muls)


def test_the_info_has_the_score_and_other_numbers():
    env = make_mock()
    before = env.get_info()
    env.reset()
    info = env.get_info()
    info.pop("action_mask")
    assert {} == before
    assert {"game_loop": 0, "score": 300, "map_name": ""} == info


@pytest.mark.parametrize("agents", ["first", "all"])
def test_the_function_mask_is_a_declared_info(agents):
    make_game = functools.partial(game, players=2)
    make = functools.partial(PySC2Wrapper, make_game, agents=agents)
    with ParallelPyEnvironment([make] * 2, backend="inline") as env:
        seen = env.reset().observation
        declared = env.declared_info()
    parts = seen if agents == "all" else [seen]
    masks = np.stack([part["action_mask"] for part in parts], axis=1)

    assert masks.any()
    assert np.array_equal(
        masks.reshape(declared["action_mask"].shape), declared["action_mask"]
    )
    assert {"game_loop", "action_mask"} <= declared.keys()


def test_the_info_of_all_agents_lists_their_scores():
    env = make_all("feature", "raw")
    env.reset()
    assert [300, 300] == env.get_info()["score"]


def test_a_real_time_game_reports_its_action_delays():
    bare = game(players=2)
    bare._realtime = True
    bare.action_delays = lambda: [[1, 2], [3, 4]]
    first, every = PySC2Wrapper(bare), PySC2Wrapper(bare, agents="all")
    for env in (first, every):
        env.reset()

    assert (True, False) == (first.realtime, PySC2Wrapper(game()).realtime)
    assert [1, 2] == first.get_info()["action_delays"]
    assert ([1, 2], [3, 4]) == every.get_info()["action_delays"]


def test_real_time_is_detected_through_wrappers_of_pysc2():
    prepare()
    from pysc2.env.base_env_wrapper import BaseEnvWrapper

    bare = game()
    bare._realtime = True
    assert PySC2Wrapper(BaseEnvWrapper(bare)).realtime


def test_render_returns_the_rgb_screen():
    env = PySC2Wrapper(game("rgb"))
    observation = env.reset().observation
    picture = env.render()
    assert (np.uint8, (24, 32, 3)) == (picture.dtype, picture.shape)
    assert (observation["rgb_screen"] == picture).all()


def test_without_an_rgb_screen_render_draws_a_layer():
    env = PySC2Wrapper(game(), render_layer="height_map")
    screen = env.reset().observation["feature_screen"]
    picture = env.render()
    from pysc2.lib import features

    expected = features.SCREEN_FEATURES.height_map.color(screen[0])
    assert (np.uint8, (24, 32, 3)) == (picture.dtype, picture.shape)
    assert (expected.astype(np.uint8) == picture).all()


def test_without_a_screen_render_is_refused(message_of):
    prepare()
    from pysc2.lib import features

    bare = mock(
        agent_interface_format=features.AgentInterfaceFormat(
            use_raw_units=True, use_raw_actions=True, raw_resolution=64
        )
    )
    env = PySC2Wrapper(bare)
    env.reset()

    assert (
        "SC2TestEnv cannot render: its first agent observes no screen. Give it an "
        "interface format with rgb_screen or feature_screen."
    ) == message_of(NotImplementedError, env.render)


def test_render_before_the_first_reset_is_refused():
    with pytest.raises(CallOrderError):
        PySC2Wrapper(game()).render()


def test_other_render_modes_are_refused(message_of):
    env = PySC2Wrapper(game())
    env.reset()
    assert "Game renders 'rgb_array' only, not 'human'." == message_of(
        ValueError, lambda: env.render("human")
    )


def test_other_attributes_come_from_the_environment():
    env = PySC2Wrapper(game())
    assert env.pysc2 is env.wrapped_env()
    assert env.pysc2.game_info is env.game_info
    assert env.save_replay("somewhere") is None
    assert not hasattr(env, "no_such_thing")


def test_closing_twice_closes_the_game_once():
    env = PySC2Wrapper(game())
    env.close()
    env.close()
    assert 1 == env.pysc2.closed


@pytest.mark.parametrize("call", ["reset", "render"])
def test_a_closed_game_raises_closed_error(call, message_of):
    env = PySC2Wrapper(game())
    env.close()
    assert str(ClosedError.used("PySC2Wrapper", call)) == message_of(
        ClosedError, lambda: getattr(env, call)()
    )
