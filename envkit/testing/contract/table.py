"""The table of promises: their names, what looks at them, and which rest on which."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from envkit.testing.contract import (
    arrays,
    episodes,
    lifetime,
    long_game,
    randomness,
    rows,
    state,
    views,
)
from envkit.testing.contract.trial import Trial

__all__ = ["CHECKS", "Check"]


class Check(NamedTuple):
    """One promise.

    Attributes:
        name: What it is called in reports and in `skip`.
        promise: The promise in a few words.
        function: What looks at it.
        needs: The checks it rests on: if one of these fails, this one says nothing new.
    """

    name: str
    promise: str
    function: Callable[[Trial], None]
    needs: tuple[str, ...] = ()


_STREAM = ("plays",)
_TWINS = ("seeding",)
_STATE = ("state", "step_after_last")

CHECKS: tuple[Check, ...] = (
    Check("constructor", "each call makes another environment", lifetime.constructor),
    Check(
        "interface",
        "it has the methods of an environment",
        lifetime.interface,
        ("constructor",),
    ),
    Check(
        "specs",
        "specs are nests of ArraySpecs, the same at every call",
        lifetime.specs,
        ("interface",),
    ),
    Check(
        "time_step",
        "every answer is a TimeStep with a known step type",
        episodes.time_step,
        ("specs",),
    ),
    Check(
        "plays",
        "reset() and actions within the spec raise nothing",
        episodes.plays,
        ("time_step",),
    ),
    Check(
        "fits_specs",
        "time steps have the structure, shapes, dtypes and bounds of the specs",
        episodes.fits_specs,
        ("time_step",),
    ),
    Check(
        "stable_specs",
        "playing does not change the specs",
        lifetime.stable_specs,
        _STREAM,
    ),
    Check("reset", "reset() begins an episode at any time", episodes.reset, _STREAM),
    Check(
        "first_step",
        "step() on a new environment begins an episode",
        episodes.first_step,
        ("reset",),
    ),
    Check(
        "grammar",
        "every row goes FIRST (MID)* LAST before the next FIRST",
        episodes.grammar,
        ("reset",),
    ),
    Check(
        "step_after_last",
        "the step after LAST begins the next episode",
        episodes.step_after_last,
        ("reset",),
    ),
    Check(
        "reset_after_last",
        "reset() after LAST begins one episode, not two",
        episodes.reset_after_last,
        ("step_after_last", "grammar"),
    ),
    Check(
        "long_game",
        "step types, dtypes, shapes and bounds hold for as long as `steps` says",
        long_game.long_game,
        ("fits_specs", "grammar", "step_after_last"),
    ),
    Check(
        "first_reward",
        "the reward of FIRST is 0",
        episodes.first_reward,
        ("reset", "fits_specs"),
    ),
    Check(
        "first_discount",
        "the discount of FIRST is 1",
        episodes.first_discount,
        ("reset", "fits_specs"),
    ),
    Check(
        "discount", "discounts are between 0 and 1", episodes.discount, ("fits_specs",)
    ),
    Check("reward", "rewards are finite", episodes.reward, ("fits_specs",)),
    Check(
        "current_time_step",
        "current_time_step() is what the last call returned",
        episodes.current_time_step,
        _STREAM,
    ),
    Check(
        "kept_results",
        "a returned time step never changes",
        arrays.kept_results,
        _STREAM,
    ),
    Check(
        "separate_arrays",
        "no two returned arrays share memory",
        arrays.separate_arrays,
        ("kept_results",),
    ),
    Check(
        "unchanged_actions",
        "actions are left as they were given",
        arrays.unchanged_actions,
        _STREAM,
    ),
    Check(
        "global_random",
        "global random generators are left alone",
        randomness.global_random,
        _STREAM,
    ),
    Check(
        "seeding",
        "the same seed and actions give the same stream",
        randomness.seeding,
        ("global_random",),
    ),
    Check(
        "reseeding",
        "a used environment can be seeded again",
        randomness.reseeding,
        (*_TWINS, "step_after_last", "kept_results"),
    ),
    Check(
        "row_seeds",
        "one seed gives each row its own stream",
        randomness.row_seeds,
        (*_TWINS, "step_after_last", "fits_specs"),
    ),
    Check(
        "seed_list",
        "a batch takes one seed for each row",
        randomness.seed_list,
        (*_TWINS, "step_after_last"),
    ),
    Check(
        "independence",
        "environments of one process leave each other alone",
        randomness.independence,
        (*_TWINS, "step_after_last", "kept_results"),
    ),
    Check(
        "own_arrays",
        "writing into a returned array changes nothing later",
        arrays.own_arrays,
        (*_TWINS, "separate_arrays"),
    ),
    Check(
        "released_actions",
        "writing into an action after step() changes nothing",
        arrays.released_actions,
        (*_TWINS, "kept_results"),
    ),
    Check(
        "ignored_action",
        "a step that begins an episode ignores its action",
        episodes.ignored_action,
        (*_TWINS, "first_step", "step_after_last"),
    ),
    Check(
        "state",
        "set_state() brings back the middle of an episode",
        state.state,
        ("global_random", "step_after_last", "kept_results"),
    ),
    Check(
        "state_after_first",
        "set_state() brings back the beginning of an episode",
        state.state_after_first,
        _STATE,
    ),
    Check(
        "state_after_last",
        "set_state() brings back the end of an episode",
        state.state_after_last,
        _STATE,
    ),
    Check(
        "state_time_step",
        "set_state() brings back current_time_step()",
        state.state_time_step,
        _STATE,
    ),
    Check(
        "state_stream",
        "get_state() changes nothing",
        state.state_stream,
        ("state", *_TWINS),
    ),
    Check(
        "state_token",
        "later steps do not change a token of get_state()",
        state.state_token,
        _STATE,
    ),
    Check("state_pickle", "a token pickles", state.state_pickle, _STATE),
    Check(
        "state_in_new_environment",
        "another environment can go on from a state",
        state.state_in_new_environment,
        _STATE,
    ),
    Check(
        "state_garbage",
        "set_state() refuses what is no token",
        state.state_garbage,
        _STATE,
    ),
    Check("render", "render() returns pictures", views.render, _STREAM),
    Check(
        "render_mode", "render() refuses unknown modes", views.render_mode, ("render",)
    ),
    Check("render_kept", "a picture never changes", views.render_kept, ("render",)),
    Check(
        "render_stream",
        "rendering changes nothing",
        views.render_stream,
        ("render", *_TWINS),
    ),
    Check("info", "get_info() returns what pickles", views.info, _STREAM),
    Check("info_spec", "infos have what is declared", views.info_spec, ("info",)),
    Check("info_kept", "an info never changes", views.info_kept, ("info",)),
    Check(
        "info_stream",
        "get_info() changes nothing, nor does writing into an info",
        views.info_stream,
        ("info_kept", *_TWINS),
    ),
    Check(
        "masked_reset",
        "reset(mask) begins episodes in the masked rows alone",
        rows.masked_reset,
        ("step_after_last", "grammar", "fits_specs"),
    ),
    Check(
        "other_rows",
        "reset(mask) leaves what the other rows do next as it was",
        rows.other_rows,
        ("masked_reset", *_TWINS),
    ),
    Check(
        "held_rows",
        "step(action, mask) leaves the other rows where they are",
        rows.held_rows,
        ("step_after_last", "grammar", "fits_specs", *_TWINS),
    ),
    Check(
        "wrong_action",
        "an action of a wrong shape is refused, and nothing moves",
        rows.wrong_action,
        _STREAM,
    ),
    Check("close", "close() works at any time, and twice", lifetime.close, _STREAM),
)
