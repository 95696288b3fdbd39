"""`EnvPoolWrapper`: a pool of EnvPool as a batch, in every reset order."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np

from envkit.adapters.envpool_parts.begun_episodes import BegunEpisodes
from envkit.adapters.envpool_parts.pool_actions import PoolActions
from envkit.adapters.envpool_parts.pool_calls import PoolCalls
from envkit.adapters.envpool_parts.pool_infos import PoolInfos
from envkit.adapters.envpool_parts.pool_rows import Answer, PoolRows, has_true
from envkit.adapters.envpool_parts.pools import as_pool, check_seedable, native_seeds
from envkit.adapters.forwarding import forwarded
from envkit.adapters.gym_environments import as_discount, check_render_mode
from envkit.autoreset import AutoReset
from envkit.errors import CallOrderError, ClosedError
from envkit.py_environment import PyEnvironment
from envkit.time_step import TimeStep
from envkit.types import Array, NestedArray, NestedSpec, Seed
from envkit.wording import listed

__all__ = ["EnvPoolWrapper"]


class EnvPoolWrapper(PyEnvironment):
    """Makes a batch of a pool of EnvPool.

    | EnvPool                        | time step of the row                        |
    |--------------------------------|---------------------------------------------|
    | a reset, of its own or asked   | `FIRST`, reward 0, discount 1               |
    | a step, neither flag           | `MID`, discount as given to the wrapper     |
    | a step, truncated              | `LAST`, discount as given to the wrapper    |
    | a step, terminated             | `LAST`, discount 0                          |

    EnvPool steps and resets any of its rows, so the wrapper offers every `AutoReset`
    order, `reset(mask)` and `step(action, mask)`. Where an environment has several
    players, they are the first dimension of a row, and the rows move together.

    Public attributes that the wrapper does not have are those of the pool.

    Example:
        >>> env = EnvPoolWrapper("CartPole-v1", num_envs=3, seed=7)  # doctest: +SKIP
        >>> env.reset().observation.shape, env.step([0, 1, 1]).reward  # doctest: +SKIP
        ((3, 4), array([1., 1., 1.], dtype=float32))
        >>> env.close()  # doctest: +SKIP
    """

    def __init__(
        self,
        env: Any,
        discount: float = 1.0,
        simplify_box_bounds: bool = True,
        *,
        autoreset: AutoReset | str = AutoReset.NEXT_STEP,
        in_turns: bool | None = None,
        **pool_kwargs: Any,
    ) -> None:
        """Wraps a pool, or makes one; closing the wrapper closes it.

        Args:
            env: A pool with EnvPool's Gymnasium interface, in synchronous mode, or
                EnvPool's name of an environment. Only a pool that was made of its name
                can be seeded later.
            discount: What later rewards are worth, after every step that does not
                terminate the episode.
            simplify_box_bounds: Whether bounds that are the same for every element
                become a single number in the specs.
            autoreset: When the episode after a `LAST` begins.
            in_turns: Whether the players of a row take turns, so that a row has one
                action; `None` for what EnvPool's own environments do.
            **pool_kwargs: With a name, what `envpool.make_gymnasium` takes: `num_envs`,
                `num_threads`, `seed`, `max_episode_steps` and what the environment
                knows. Without a `seed` one is drawn.
        """
        super().__init__()
        self._pool, self._recipe = as_pool(env, pool_kwargs, adapter="EnvPoolWrapper")
        self._name = env if self._recipe else type(env).__name__
        config = self._pool.config
        self._count = int(config["num_envs"])
        if config["batch_size"] not in (0, self._count):
            raise ValueError(
                f"EnvPoolWrapper was given {self._name} in EnvPool's asynchronous "
                f"mode, with batch_size={config['batch_size']} and num_envs="
                f"{self._count}. AsyncEnvPool takes it."
            )
        self._ids = np.arange(self._count, dtype=np.int32)
        self._rows = rows = PoolRows(
            self._pool,
            self._name,
            discount=as_discount(discount),
            simplify=simplify_box_bounds,
            in_turns=in_turns,
        )
        self._actions = PoolActions(
            rows.action_spec, self._count, "EnvPoolWrapper.step()", rows.acting
        )
        self._calls: Any = PoolCalls(self._pool, rows.acting)
        self._infos = PoolInfos(rows)
        self._seeds: list[int] | None = None
        # Where the episode is over and the pool has not begun the next.
        self._over = np.zeros(self._count, bool)
        self._has_over = False
        # Where the pool has begun the next and nobody has been told.
        self._begun = BegunEpisodes(rows.structure, self._count)
        self._closed = False
        self._set_order(AutoReset.of(autoreset))

    @property
    def pool(self) -> Any:
        """The pool of EnvPool; `None` after closing."""
        return self._pool

    @property
    def batched(self) -> bool:
        """True."""
        return True

    @property
    def batch_size(self) -> int:
        """How many rows there are."""
        return self._count

    @property
    def resets_rows(self) -> bool:
        """Whether `reset` takes a mask: unless rows have several players."""
        return self._rows.players == 1

    @property
    def holds_rows(self) -> bool:
        """Whether `step` takes a mask: unless rows have several players."""
        return self._rows.players == 1

    @property
    def autoreset(self) -> AutoReset:
        """When the episode after a `LAST` begins; may be changed at any time."""
        return self._order

    @autoreset.setter
    def autoreset(self, order: AutoReset | str) -> None:
        self._check_open("autoreset")
        order = AutoReset.of(order)
        self._arrive()
        self._set_order(order)

    def _arrive(self) -> None:
        """Lets the rows stand at what they have begun, whatever comes after."""
        if self._begun.exist:
            self._current_time_step = self.current_time_step()
            self._infos.arrive(self._begun.mask)
            self._begun.forget()

    def _move_plainly(self, plainly: bool) -> None:
        super()._move_plainly(plainly)
        if not self._closed:
            self._arrive()
            self._waits = not plainly and self._order is AutoReset.DISABLED
            self._begins_same = not plainly and self._order is AutoReset.SAME_STEP

    def _set_order(self, order: AutoReset) -> None:
        if self._rows.players > 1 and order is not AutoReset.NEXT_STEP:
            raise NotImplementedError(
                f"{self._name} has {self._rows.players} players in each row. EnvPool "
                "moves such rows together only, and begins the next episode with the "
                "next step: autoreset=AutoReset.NEXT_STEP."
            )
        self._order = order
        self._waits = order is AutoReset.DISABLED
        self._begins_same = order is AutoReset.SAME_STEP

    def __getattr__(self, name: str) -> Any:
        return forwarded(self, lambda: self._pool, name)

    def observation_spec(self) -> NestedSpec:
        """Returns the specs of one row's observation."""
        return self._rows.observation_spec

    def action_spec(self) -> NestedSpec:
        """Returns the spec of one row's action."""
        return self._rows.action_spec

    def reward_spec(self) -> NestedSpec:
        """Returns the spec of one row's reward: a number for each player."""
        return self._rows.reward_spec

    def seed(self, seed: Seed) -> None:
        """Has the next reset of all rows seed each: its own stream, or its own seed.

        EnvPool takes seeds only when a pool is made, so that reset makes it anew.

        Raises:
            NotImplementedError: The wrapper was given a pool and not its name.
        """
        self._check_open("seed")
        check_seedable(self._recipe, self._name, "EnvPoolWrapper")
        self._noted_seed = seed
        self._seeds = native_seeds(seed, self._count)

    def get_info(self) -> dict[str, Any]:
        """Returns the infos of all rows, in arrays.

        They belong to the time step that was returned last, also where the next episode
        has begun since. Besides what EnvPool says there are `terminated` and
        `truncated`. Before the first reset they are empty.
        """
        return self._infos.shown()

    def current_info(self) -> dict[str, Any]:
        """Returns the infos that belong to the `current_time_step()`.

        They differ from `get_info()` where an episode has ended and the next begun.
        """
        return self._infos.standing()

    def render(self, mode: str = "rgb_array") -> Any:
        """Returns the pictures of all rows.

        Args:
            mode: The `render_mode` that the pool was made with: "rgb_array", or "human"
                for a window with the row of its `render_env_id`.
        """
        self._check_open("render")
        check_render_mode(self._pool, self._name, mode)
        try:
            if mode != "rgb_array":
                return self._pool.render()
            return np.array(self._pool.render(self._ids))
        except RuntimeError as error:
            if "not implemented" not in str(error):
                raise
            raise NotImplementedError(
                f"{self._name} cannot render: EnvPool has no pictures of it."
            ) from error

    def close(self) -> None:
        """Closes the pool and lets go of it; calling it again does nothing."""
        if not self._closed:
            self._closed = True
            self._let_go()

    def _let_go(self) -> None:
        self._pool.close()
        # Its threads end with it, before those of another begin.
        self._pool = self._calls = None

    def current_time_step(self) -> TimeStep:
        """Returns where the rows stand now: what a policy should act on.

        Where an episode has ended and the next begun, that is the next one's `FIRST`.
        """
        current = super().current_time_step()
        return self._begun.instead_of(current) if self._begun.exist else current

    def _reset(self) -> TimeStep:
        self._check_open("reset")
        if self._seeds is not None:
            self._make_anew(self._seeds)
        elif self._begun.exist:
            return self._reset_rows(np.ones(self._count, bool))
        answer = self._ask_to_begin(self._ids)
        self._infos.whole(answer)
        self._over = np.zeros(self._count, bool)
        self._has_over = False
        self._begun.forget()
        return answer.time_step

    def _make_anew(self, seeds: list[int]) -> None:
        assert self._recipe is not None  # or there would be no seeds
        self._let_go()
        self._pool = self._recipe.build(seeds)
        self._calls = PoolCalls(self._pool, self._rows.acting)
        self._seeds = None

    def _reset_rows(self, mask: Array) -> TimeStep:
        self._check_open("reset")
        self._check_single_players("reset")
        whole = self._rows.blank(self._count)
        self._begin(mask, whole)
        return whole

    def _begin(self, mask: Array, whole: TimeStep) -> None:
        """Has the masked rows begin an episode, unless they have, and notes it."""
        known = mask & self._begun.mask
        if has_true(known):
            self._begun.tell(known, whole)
            self._infos.arrive(known)
        rows = self._ids[mask & ~known]
        if rows.size:
            answer = self._ask_to_begin(rows)
            self._infos.some(answer)
            self._over[rows] = False
            self._has_over = has_true(self._over)
            self._rows.put(answer, whole)

    def _step(self, action: NestedArray) -> TimeStep:
        # Hot: called once per batch step.
        if self._closed or (self._waits and self._has_over):
            self._refuse_step(self._over)
        ignored = self._over if self._has_over else None
        members = self._actions.members(action, ignored=ignored)
        answer = self._ask_to_step(members, self._ids)
        self._infos.whole(answer)
        if self._begun.exist:
            self._begun.forget()
        if answer.ended is not None:
            self._over, self._has_over = answer.ended, True
            if self._begins_same:
                self._begin_next(answer.ended)
        elif self._has_over:
            self._over, self._has_over = np.zeros(self._count, bool), False
        return answer.time_step

    def _step_rows(
        self, action: NestedArray, stepping: Array, beginning: Array
    ) -> TimeStep:
        self._check_open("step")
        self._check_single_players("step")
        if self._waits and has_true(stepping & self._over):
            self._refuse_step(stepping & self._over)
        members = self._actions.members(action, ignored=~stepping | self._over)
        # What is over begins with a step, whatever the action.
        moving = stepping | (beginning & self._over)
        rows = self._ids[moving]
        answer = self._ask_to_step(members[rows], rows)
        self._infos.some(answer)
        whole = self._rows.blank(self._count)
        self._rows.put(answer, whole)
        self._begun.forget(moving)
        self._over = self._over & ~moving
        if answer.ended is not None:
            self._over[rows] = answer.ended
            if self._begins_same:
                self._begin_next(self._over & moving)
        self._has_over = has_true(self._over)
        self._begin(beginning & ~moving, whole)
        return whole

    def _ask_to_begin(self, rows: Array) -> Answer:
        self._calls.reset(rows)
        return self._rows.read(self._calls.recv(), rows)

    def _ask_to_step(self, actions: Array, rows: Array) -> Answer:
        # Hot: called once per batch step.
        self._calls.send(actions, rows)
        return self._rows.read(self._calls.recv(), rows)

    def _begin_next(self, mask: Array) -> None:
        """Begins the next episode in the masked rows, and keeps what is seen there."""
        rows = self._ids[mask]
        answer = self._ask_to_begin(rows)
        self._infos.begin(answer)
        self._begun.note(answer)
        self._over = self._over & ~mask
        self._has_over = has_true(self._over)

    def _refuse_step(self, mask: Array) -> NoReturn:
        self._check_open("step")
        rows = mask.nonzero()[0]
        noun = "row" if rows.size == 1 else "rows"
        raise CallOrderError(
            f"step() was called after the episode of {noun} {listed(rows)} ended. "
            "Under AutoReset.DISABLED, call reset(mask) for them first, or leave them "
            "out with step(action, mask); none of the environments has moved."
        )

    def _check_single_players(self, call: str) -> None:
        if self._rows.players > 1:
            raise NotImplementedError(
                f"{self._name} has {self._rows.players} players in each row. EnvPool "
                f"moves such rows together only: call {call}() without a mask."
            )

    def _check_open(self, call: str) -> None:
        if self._closed:
            raise ClosedError.used(type(self).__name__, call)

    def _get_state(self) -> NoReturn:
        raise NotImplementedError(
            f"{self._name} cannot save its state: EnvPool's environments are C++ "
            "objects that offer no copy of themselves. Where a state is needed, step "
            "the same game from another library, Gymnasium or ale-py for example."
        )
