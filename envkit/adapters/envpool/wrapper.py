"""`EnvPoolWrapper`: an EnvPool pool as a batch, in every reset order."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np

from envkit import nest
from envkit._shared.arguments import as_discount
from envkit.adapters.envpool.pools import (
    Answer,
    PoolActions,
    PoolCalls,
    PoolRows,
    as_pool,
    check_seedable,
    has_true,
    native_seeds,
)
from envkit.adapters.foreign import (
    ForeignBase,
    ForeignInternals,
    check_render_mode,
)
from envkit.errors import CallOrderError
from envkit.extend import listed
from envkit.provenance import record_seed
from envkit.time_step import AutoReset, StepType, TimeStep
from envkit.types import Array, NestedArray, Seed

__all__ = ["EnvPoolWrapper"]

_FIRST = int(StepType.FIRST)
_ZERO, _ONE = np.float32(0.0), np.float32(1.0)


class _EnvPoolInternals(ForeignInternals):
    """Defines how envkit treats a batch that EnvPool steps."""

    keeps_order_itself = True

    def suspend_order(self, env: Any, suspended: bool) -> None:
        """Suspends the order, or restores it."""
        super().suspend_order(env, suspended)
        if not env._closed:
            env._arrive()
            env._waits = not suspended and env._order is AutoReset.DISABLED
            env._begins_same = not suspended and env._order is AutoReset.SAME_STEP


class EnvPoolWrapper(ForeignBase):
    """Wraps an EnvPool pool as a batch.

    | EnvPool                        | time step of the row                        |
    |--------------------------------|---------------------------------------------|
    | a reset, automatic or not      | `FIRST`, reward 0, discount 1               |
    | a step, neither flag           | `MID`, discount as given to the wrapper     |
    | a step, truncated              | `LAST`, discount as given to the wrapper    |
    | a step, terminated             | `LAST`, discount 0                          |

    EnvPool can step and reset any rows, so the wrapper offers every `AutoReset` order,
    `reset(mask)` and `step(action, mask)`. If an environment has several players, they
    are the first dimension of a row, and the rows step together.

    If an episode terminates in the very step of its limit, EnvPool reports a
    truncation. Rewards for resets, which some environments give, are dropped. For
    `Discrete` spaces, specs and arrays are int64, although EnvPool returns int32.

    `render` returns the pictures of all rows. With the `render_mode` "human", it shows
    the row `render_env_id` in a window. Public attributes that the wrapper lacks are
    taken from the pool.

    Example:
        >>> env = EnvPoolWrapper("CartPole-v1", num_envs=3, seed=7)  # doctest: +SKIP
        >>> env.reset().observation.shape, env.step([0, 1, 1]).reward  # doctest: +SKIP
        ((3, 4), array([1., 1., 1.], dtype=float32))
        >>> env.close()  # doctest: +SKIP
    """

    _envkit = _EnvPoolInternals()

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
        """Wraps or makes a pool; closing the wrapper closes the pool.

        Args:
            env: A pool with EnvPool's Gymnasium interface, in synchronous mode, or
                EnvPool's name of an environment. Only a pool made by name can be seeded
                later.
            discount: The discount of steps that do not terminate the episode.
            simplify_box_bounds: Whether bounds that are the same for every element
                become a single number in the specs.
            autoreset: When the episode after a `LAST` begins.
            in_turns: Whether the players of a row take turns, so that a row has one
                action; `None` for the default of EnvPool's environments.
            **pool_kwargs: With a name, arguments of `envpool.make_gymnasium`:
                `num_envs`, `num_threads`, `seed`, `max_episode_steps`, and those of the
                environment. Without a `seed`, one is drawn.
        """
        super().__init__()
        self._foreign, self._recipe = as_pool(
            env, pool_kwargs, adapter="EnvPoolWrapper"
        )
        self._name = env if self._recipe else type(env).__name__
        config = self._foreign.config
        self._count = self._batch_size = int(config["num_envs"])
        if config["batch_size"] not in (0, self._count):
            raise ValueError(
                f"EnvPoolWrapper was given {self._name} in EnvPool's asynchronous "
                f"mode, with batch_size={config['batch_size']} and num_envs="
                f"{self._count}. Make the pool without a batch_size."
            )
        self._ids = np.arange(self._count, dtype=np.int32)
        self._rows = rows = PoolRows(
            self._foreign,
            self._name,
            discount=as_discount(discount),
            simplify=simplify_box_bounds,
            in_turns=in_turns,
        )
        self._observation_spec = rows.observation_spec
        self._action_spec = rows.action_spec
        self._reward_spec = rows.reward_spec
        self._actions = PoolActions(
            rows.action_spec, self._count, "EnvPoolWrapper.step()", rows.acting
        )
        self._calls: Any = PoolCalls(self._foreign, rows.acting)
        self._infos = _PoolInfos(rows)
        self._seeds: list[int] | None = None
        # Rows at the end of an episode, whose next one has not begun in the pool.
        self._over = np.zeros(self._count, bool)
        self._has_over = False
        # Rows whose next episode has begun in the pool, but not for the caller.
        self._begun = _BegunEpisodes(rows.structure, self._count)
        self._set_order(AutoReset.of(autoreset))

    @property
    def pool(self) -> Any:
        """The EnvPool pool; `None` after closing."""
        return self._foreign

    @property
    def resets_rows(self) -> bool:
        """True if `reset` takes a mask: if each row has a single player."""
        return self._rows.players == 1

    @property
    def holds_rows(self) -> bool:
        """True if `step` takes a mask: if each row has a single player."""
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
        """Moves all rows to the episodes that they have already begun."""
        if self._begun.exist:
            self._current_time_step = self.current_time_step()
            self._infos.arrive(self._begun.mask)
            self._begun.forget()

    def _set_order(self, order: AutoReset) -> None:
        if self._rows.players > 1 and order is not AutoReset.NEXT_STEP:
            raise NotImplementedError(
                f"{self._name} has {self._rows.players} players in each row. EnvPool "
                "only moves such rows together, and begins the next episode with the "
                "next step: autoreset=AutoReset.NEXT_STEP."
            )
        self._order = order
        self._waits = order is AutoReset.DISABLED
        self._begins_same = order is AutoReset.SAME_STEP

    def seed(self, seed: Seed) -> None:
        """Seeds each row at the next reset of all rows.

        EnvPool only takes seeds when a pool is made, so that reset makes a new pool.

        Raises:
            NotImplementedError: The wrapper was given a pool and not its name.
        """
        self._check_open("seed")
        check_seedable(self._recipe, self._name, "EnvPoolWrapper")
        record_seed(self, seed)
        self._seeds = native_seeds(seed, self._count)

    def get_info(self) -> dict[str, Any]:
        """Returns the infos of all rows, in arrays.

        They belong to the time step returned last, even if the next episode has begun
        since. They include EnvPool's infos, `terminated` and `truncated`. Before the
        first reset they are empty.
        """
        return self._infos.shown()

    def current_info(self) -> dict[str, Any]:
        """Returns the infos of the `current_time_step()`.

        They differ from `get_info()` if an episode has ended and the next has begun.
        """
        return self._infos.standing()

    def _draw(self, mode: str) -> Any:
        check_render_mode(self._foreign, self._name, mode)
        try:
            rows = (self._ids,) if mode == "rgb_array" else ()
            return self._foreign.render(*rows)
        except RuntimeError as error:
            if "not implemented" not in str(error):
                raise
            raise NotImplementedError(
                f"{self._name} cannot render: EnvPool has no pictures of it."
            ) from error

    def _close(self) -> None:
        self._let_go()

    def _let_go(self) -> None:
        self._foreign.close()
        # The old pool's threads end here, before a new pool starts its own.
        self._foreign = self._calls = None

    def current_time_step(self) -> TimeStep:
        """Returns the time step on which a policy should act next.

        If an episode has ended and the next has begun, this returns the next one's
        `FIRST`.
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
        assert self._recipe is not None  # only a pool with a recipe takes seeds
        self._let_go()
        self._foreign = self._recipe.build(seeds)
        self._calls = PoolCalls(self._foreign, self._rows.acting)
        self._seeds = None

    def _reset_rows(self, mask: Array) -> TimeStep:
        self._check_open("reset")
        self._check_single_players("reset")
        whole = self._rows.blank(self._count)
        self._begin(mask, whole)
        return whole

    def _begin(self, mask: Array, whole: TimeStep) -> None:
        """Begins an episode in the masked rows that have not begun one already."""
        known = mask & self._begun.mask
        if has_true(known):
            self._begun.move_to(known, whole)
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
        # In a row whose episode is over, any step begins a new one.
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
        """Begins the next episode in the masked rows and keeps its time steps."""
        rows = self._ids[mask]
        answer = self._ask_to_begin(rows)
        self._infos.begin(answer)
        self._begun.keep(answer)
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
                f"only moves such rows together: call {call}() without a mask."
            )

    def _get_state(self) -> NoReturn:
        raise NotImplementedError(
            f"{self._name} cannot save its state: EnvPool's environments are C++ "
            "objects that offer no copy of themselves. If you need a state, use the "
            "same game from another library, such as Gymnasium or ale-py."
        )

    def _set_state(self, state: Any) -> NoReturn:
        self._get_state()


class _BegunEpisodes:
    """Keeps the first time steps of episodes that the caller has not seen yet.

    Attributes:
        mask: The rows that have begun one.
        exist: Whether there are any.
    """

    def __init__(self, structure: nest.Structure, rows: int) -> None:
        """Starts without any.

        Args:
            structure: The structure of an observation.
            rows: The number of rows.
        """
        self._structure = structure
        self._rows = rows
        self._leaves: list[Array] = []
        self.mask: Array = np.zeros(rows, bool)
        self.exist = False

    def forget(self, mask: Array | None = None) -> None:
        """Forgets the begun episodes of the masked rows, or of all."""
        self.mask = np.zeros(self._rows, bool) if mask is None else self.mask & ~mask
        self.exist = mask is not None and has_true(self.mask)

    def keep(self, answer: Answer) -> None:
        """Keeps the answers of rows that have begun an episode."""
        if not self._leaves:
            self._leaves = [
                np.zeros((self._rows, *spec.shape), spec.dtype)
                for spec in self._structure.leaves
            ]
        given = self._structure.flatten(answer.time_step.observation)
        for ours, leaf in zip(self._leaves, given, strict=True):
            ours[answer.rows] = leaf
        self.mask = self.mask.copy()
        self.mask[answer.rows] = True
        self.exist = True

    def move_to(self, mask: Array, whole: TimeStep) -> None:
        """Writes `FIRST`s of begun episodes to the masked rows, and forgets them."""
        whole.step_type[mask] = _FIRST
        whole.reward[mask] = 0.0
        whole.discount[mask] = 1.0
        theirs = self._structure.flatten(whole.observation)
        for ours, leaf in zip(theirs, self._leaves, strict=True):
            ours[mask] = leaf[mask]
        self.forget(mask)

    def instead_of(self, current: TimeStep) -> TimeStep:
        """Returns a time step with the `FIRST` of each begun episode."""
        begun = self.mask
        pairs = zip(
            self._leaves, self._structure.flatten(current.observation), strict=True
        )
        leaves = [
            np.where(begun.reshape(-1, *[1] * (new.ndim - 1)), new, old)
            for new, old in pairs
        ]
        return TimeStep(
            np.where(begun, np.int32(_FIRST), current.step_type),
            np.where(begun, _ZERO, current.reward),
            np.where(begun, _ONE, current.discount),
            self._structure.unflatten(leaves),
        )


class _PoolInfos:
    """Collects a pool's infos.

    Infos are seldom read, so keeping them must cost nearly nothing.
    """

    def __init__(self, reader: PoolRows) -> None:
        """Begins without infos; `reader` reads them from answers."""
        self._reader = reader
        self._whole: Answer | None = None
        # Later answers of single rows, and the row's place in each.
        self._later: dict[int, tuple[Answer, int]] = {}
        # Answers about the next episode, for rows in which it has begun.
        self._begun: dict[int, tuple[Answer, int]] = {}

    def whole(self, answer: Answer) -> None:
        """Keeps the infos of all rows."""
        self._whole = answer
        if self._later:
            self._later = {}
        if self._begun:
            self._begun = {}

    def some(self, answer: Answer) -> None:
        """Keeps the infos of some rows."""
        for place, row in enumerate(answer.rows.tolist()):
            self._later[row] = answer, place
            self._begun.pop(row, None)

    def begin(self, answer: Answer) -> None:
        """Keeps the infos of rows that have begun their next episode."""
        for place, row in enumerate(answer.rows.tolist()):
            self._begun[row] = answer, place

    def arrive(self, mask: Array) -> None:
        """Makes the begun episodes of the masked rows current."""
        for row in mask.nonzero()[0].tolist():
            self._later[row] = self._begun.pop(row)

    def shown(self) -> dict[str, Any]:
        """Returns the infos of the time step returned last."""
        return self._put_together(self._later)

    def standing(self) -> dict[str, Any]:
        """Returns the infos of the rows' current time step."""
        return self._put_together({**self._later, **self._begun})

    def _put_together(self, later: dict[int, tuple[Answer, int]]) -> dict[str, Any]:
        if self._whole is None:
            return {}
        infos_of = self._reader.infos_of
        infos = infos_of(self._whole)
        for row, (answer, place) in later.items():
            _put(infos, row, infos_of(answer), place)
        return infos


def _put(infos: dict[str, Any], row: int, others: dict[str, Any], place: int) -> None:
    for key, value in infos.items():
        if isinstance(value, dict):
            _put(value, row, others[key], place)
        else:
            value[row] = others[key][place]
