"""EnvPool's pools: recognises, reads and makes them; remakes them to seed them."""

from __future__ import annotations

import dataclasses
import difflib
import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from envkit import nest
from envkit.adapters.foreign import require
from envkit.adapters.gymnasium.spaces import spec_from_gym_space
from envkit.errors import ConstructorError, SpecError
from envkit.extend import ActionRows, describe
from envkit.seeding import seed_per_row
from envkit.specs.arrays import ArraySpec, BoundedArraySpec
from envkit.specs.validation import check_fits
from envkit.time_step import StepType, TimeStep
from envkit.types import Array, NestedArray, NestedSpec

__all__ = [
    "Answer",
    "PoolActions",
    "PoolCalls",
    "PoolRecipe",
    "PoolRows",
    "as_pool",
    "check_seedable",
    "has_true",
    "native_seeds",
    "spaces_of",
]

# EnvPool's seeds wrap around here.
_SEEDS = 2**32


@dataclasses.dataclass(frozen=True, slots=True)
class PoolRecipe:
    """Makes a pool again, because EnvPool only seeds a pool when it is made.

    Attributes:
        task_id: EnvPool's name of the environment.
        arguments: The keyword arguments of `envpool.make_gymnasium`, without seeds.
    """

    task_id: str
    arguments: Mapping[str, Any]

    def build(self, seeds: list[int]) -> Any:
        """Makes a pool whose rows have these seeds."""
        import envpool

        try:
            pool = envpool.make_gymnasium(self.task_id, seed=seeds, **self.arguments)
        except AssertionError as error:
            raise ConstructorError(
                f"EnvPool does not make {self.task_id!r}: {error}"
            ) from error
        spaces_of(pool)
        return pool


def as_pool(
    env: Any, arguments: dict[str, Any], *, adapter: str
) -> tuple[Any, PoolRecipe | None]:
    """Returns a pool, and a recipe to make it again if that is known.

    Args:
        env: A pool with the Gymnasium interface, or EnvPool's name of an environment.
        arguments: With a name, the keyword arguments of `envpool.make_gymnasium`.
        adapter: The adapter's name, for errors.
    """
    require("envpool", needed_by=adapter, extra="envpool")
    if not isinstance(env, str):
        _check_pool(env, arguments, adapter)
        return env, None
    _check_id(env)
    rows = int(arguments.get("num_envs", 1))
    if rows < 1:
        raise ValueError(f"num_envs must be at least 1, got {rows}.")
    if "env_type" in arguments:
        raise TypeError(
            f"{adapter} chooses EnvPool's interface, 'gymnasium': leave out env_type."
        )
    batch = arguments.get("batch_size") or rows
    if batch > rows:
        raise ValueError(
            f"batch_size must be at most num_envs, which is {rows}, got {batch}. The "
            f"number of rows is num_envs: write num_envs={batch}."
        )
    seed = _take_seed(arguments)
    recipe = PoolRecipe(env, {**arguments, "num_envs": rows})
    return recipe.build(native_seeds(seed, rows)), recipe


def check_seedable(recipe: PoolRecipe | None, name: str, adapter: str) -> None:
    """Raises when seeding a pool that cannot be made again."""
    if recipe is None:
        raise NotImplementedError(
            f"{name} cannot be seeded: EnvPool takes seeds only when a pool is made, "
            f"and this one was made already. Make it with a seed, or give {adapter} "
            f"the name: {adapter}('CartPole-v1', num_envs=8)."
        )


def native_seeds(seed: Any, rows: int) -> list[int]:
    """Returns a seed for each environment of a pool, as int32, which EnvPool takes.

    One integer gives each row its own seed, independent of the number of rows. `None`
    draws the seeds.

    Example:
        >>> native_seeds([1, 2**32 - 1, -1], rows=3)
        [1, -1, -1]
    """
    if isinstance(seed, list | tuple | np.ndarray):
        # A negative seed stays negative.
        seed = [own if own is None else int(own) % _SEEDS for own in seed]
    drawn = np.random.SeedSequence().generate_state(rows).tolist()
    seeds = [
        new if own is None else own
        for own, new in zip(seed_per_row(seed, rows), drawn, strict=True)
    ]
    half = _SEEDS // 2
    return [(own + half) % _SEEDS - half for own in seeds]


def spaces_of(pool: Any) -> tuple[Any, Any]:
    """Returns the spaces of one row's observation and action.

    Gymnasium warns about their bounds, which EnvPool has in float64; users cannot
    change that, so the warning is suppressed. The pool caches its spaces.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pool.observation_space, pool.action_space


def _take_seed(arguments: dict[str, Any]) -> Any:
    """Removes the seed from the arguments, under either of its names."""
    seed, by_row = arguments.pop("seed", None), arguments.pop("env_seed", None)
    if seed is not None and by_row is not None:
        raise ValueError("seed and env_seed are two names of one argument; pass one.")
    return by_row if seed is None else seed


def _check_pool(env: Any, arguments: dict[str, Any], adapter: str) -> None:
    needed = ("send", "recv", "step", "reset", "config", "spec")
    if isinstance(env, type) or not all(hasattr(env, name) for name in needed):
        what = f"the class {env.__name__}" if isinstance(env, type) else describe(env)
        raise TypeError(
            f"{adapter} was given {what}, which is not a pool of EnvPool. "
            "envpool.make_gymnasium(...) makes one, and the name of an environment "
            f"works too: {adapter}('CartPole-v1', num_envs=8)."
        )
    # Looked up on the class, because the pool makes its spaces on access.
    if not hasattr(type(env), "observation_space"):
        raise TypeError(
            f"{adapter} was given a pool with the dm_env interface of EnvPool, where a "
            "truncation looks like a termination: both have a discount of 0. Make it "
            "with env_type='gymnasium'."
        )
    if arguments:
        raise TypeError(
            f"{adapter} was given a pool and {sorted(arguments)[0]!r}, which says how "
            "to make one. Such arguments go with the name of an environment."
        )


def _check_id(task_id: str) -> None:
    import envpool

    known = envpool.list_all_envs()
    if task_id in known:
        return
    lowered = {name.lower(): name for name in known}
    near = difflib.get_close_matches(task_id.lower(), list(lowered), n=3, cutoff=0.6)
    names = " or ".join(repr(lowered[name]) for name in near)
    hint = f" Did you mean {names}?" if names else ""
    raise ValueError(
        f"EnvPool has no environment named {task_id!r}.{hint} envpool.list_all_envs() "
        f"names all {len(known)}."
    )


# Arrays, so that NumPy need not make them each time.
_FIRST, _MID, _LAST = StepType.FIRST, StepType.MID, StepType.LAST
_ZERO = np.zeros((), np.float32)
_ZERO.setflags(write=False)
# Environments in this module take one action for all players, who take turns.
_IN_TURNS = "envpool.pgx"


class Answer(NamedTuple):
    """Holds EnvPool's answer for some rows.

    Attributes:
        rows: The rows.
        time_step: Their time step.
        ended: The rows whose episode has ended, or `None`.
        arrays: The complete answer.
    """

    rows: Array
    time_step: TimeStep
    ended: Array | None
    arrays: list[Array]


class PoolRows:
    """Reads a pool's answers.

    Attributes:
        observation_spec: The specs of one row's observation.
        action_spec: The spec of one row's action.
        reward_spec: The spec of one row's reward.
        structure: The structure of an observation.
        players: The number of players per row.
        acting: The number of players that act in a step; 0 if they take turns, or there
            is only one.
    """

    def __init__(
        self,
        pool: Any,
        name: str,
        *,
        discount: float = 1.0,
        simplify: bool = True,
        in_turns: bool | None = None,
    ) -> None:
        """Prepares for a pool.

        Args:
            pool: The pool.
            name: The pool's name in errors.
            discount: The discount of steps that do not terminate the episode.
            simplify: Whether bounds that are the same everywhere become one number.
            in_turns: Whether one action is given for all players of a row; `None` for
                the default of EnvPool's environments.
        """
        self._name = name
        self.players = int(pool.config.get("max_num_players", 1))
        if in_turns is None:
            kinds = type(pool).__mro__
            in_turns = any(kind.__module__.startswith(_IN_TURNS) for kind in kinds)
        self.acting = 0 if self.players == 1 or in_turns else self.players
        self._read_keys(pool)
        space, actions = spaces_of(pool)
        spec = spec_from_gym_space(space, simplify, "observation")
        places, structure = self._places_of(spec), nest.Structure(spec)
        self.observation_spec: NestedSpec = structure.unflatten(
            [
                _repeated(
                    _as_meant(leaf), self.players if self._has_players[place] else 1
                )
                for leaf, place in zip(structure.leaves, places, strict=True)
            ]
        )
        self.structure = nest.Structure(self.observation_spec)
        self._is_one = isinstance(spec, ArraySpec)
        # The place of each leaf in an answer, and its requirements.
        self._leaves = [
            (place, leaf.dtype, leaf.shape, leaf)
            for place, leaf in zip(places, self.structure.leaves, strict=True)
        ]
        self.action_spec = self._spec_of_actions(actions, simplify)
        self._dims = () if self.players == 1 else (self.players,)
        self.reward_spec = ArraySpec(self._dims, np.float32, "reward")
        self._discount = np.float32(discount)
        self._is_discounted = discount != 1.0
        # The step types of most answers of a given number of rows, and their discounts.
        self._usual: dict[int, tuple[bytes, Array]] = {}

    def _read_keys(self, pool: Any) -> None:
        """Finds the places of the arrays in an answer."""
        self._keys = keys = list(pool._state_keys)
        specs = pool.spec.state_array_spec
        several = self.players > 1
        self._has_players = [several and specs[key].shape[:1] == [-1] for key in keys]
        self._rows = keys.index("info:env_id")
        self._step_type = keys.index("step_type")
        self._trunc = keys.index("trunc")
        self._reward = keys.index("reward")
        self._owners = keys.index("info:players.env_id")

    def _places_of(self, spec: NestedSpec) -> list[int]:
        """Lists the places of an observation's leaves in an answer."""
        if isinstance(spec, ArraySpec):
            (place,) = (
                place
                for place, key in enumerate(self._keys)
                if key.partition(":")[0] == "obs"
            )
            return [place]
        paths = nest.Structure(spec).paths
        return [self._keys.index(f"obs:{_dotted(path)}") for path in paths]

    def _spec_of_actions(self, space: Any, simplify: bool) -> ArraySpec:
        spec = spec_from_gym_space(space, simplify, "action")
        if not isinstance(spec, ArraySpec):
            raise NotImplementedError(
                f"{self._name} takes actions of several arrays, which no environment "
                "of EnvPool did when this adapter was written."
            )
        return _repeated(spec, self.acting) if self.acting else spec

    def blank(self, count: int) -> TimeStep:
        """Returns an unfilled time step of `count` rows."""
        return TimeStep(
            np.zeros(count, np.int32),
            np.zeros((count, *self._dims), np.float32),
            np.zeros(count, np.float32),
            self.structure.map(
                lambda spec: np.zeros((count, *spec.shape), spec.dtype),
                self.observation_spec,
            ),
        )

    def put(self, answer: Answer, whole: TimeStep) -> None:
        """Writes the answer of some rows into the time step of all rows."""
        rows, given, flatten = answer.rows, answer.time_step, self.structure.flatten
        whole.step_type[rows] = given.step_type
        whole.reward[rows] = given.reward
        whole.discount[rows] = given.discount
        pairs = zip(flatten(whole.observation), flatten(given.observation), strict=True)
        for ours, leaf in pairs:
            ours[rows] = leaf

    def read(self, arrays: list[Array], asked: Array) -> Answer:
        """Reads an answer of EnvPool.

        Args:
            arrays: The answer.
            asked: The rows that were asked, in ascending order.
        """
        # Hot: called once per batch step.
        rows = arrays[self._rows]
        if self.players > 1 or rows.tobytes() != asked.tobytes():
            arrays = self._arranged(arrays, asked)
            rows = arrays[self._rows]
        count = len(rows)
        usual, discounts = self._usual.get(count) or self._new_usual(count)
        discount, ended = discounts.copy(), None
        # EnvPool's step types have the usual numbers.
        step_type, reward = arrays[self._step_type], arrays[self._reward]
        if step_type.tobytes() != usual:
            begun = np.equal(step_type, _FIRST)
            # Some environments give a reward for a reset.
            if reward.ndim == 1:
                np.putmask(reward, begun, _ZERO)
            else:
                reward[begun] = 0.0
            if self._is_discounted:
                discount[begun] = 1.0
            is_last: Array = np.equal(step_type, _LAST)
            if has_true(is_last):
                ended = is_last
                np.putmask(discount, is_last > arrays[self._trunc], _ZERO)
        observation = self._observation(arrays, count)
        time_step = TimeStep(step_type, reward, discount, observation)
        return Answer(rows, time_step, ended, arrays)

    def _new_usual(self, count: int) -> tuple[bytes, Array]:
        steps = np.full(count, _MID, np.int32)
        usual = steps.tobytes(), np.full(count, self._discount)
        self._usual[count] = usual
        return usual

    def _observation(self, arrays: list[Array], count: int) -> NestedArray:
        """Returns an observation with the exact dtypes."""
        # Hot: called once per batch step.
        leaves = []
        for place, dtype, shape, spec in self._leaves:
            leaf = arrays[place]
            if leaf.dtype is not dtype or leaf.shape != (count, *shape):
                leaf = self._converted(leaf, spec, count)
            leaves.append(leaf)
        return leaves[0] if self._is_one else self.structure.unflatten(leaves)

    def _converted(self, leaf: Array, spec: ArraySpec, count: int) -> Array:
        """Converts an array that has the spec's shape to the spec's dtype."""
        is_safe = np.can_cast(leaf.dtype, spec.dtype)
        if not is_safe or leaf.shape != (count, *spec.shape):
            self._refuse(leaf, spec, count)
        return leaf.astype(spec.dtype, copy=False)

    def _refuse(self, leaf: Array, spec: ArraySpec, count: int) -> None:
        check_fits(
            leaf,
            spec,
            subject=f"{self._name} returned an observation that",
            root="observation",
            outer_dims=(count,),
        )

    def _arranged(self, arrays: list[Array], asked: Array) -> list[Array]:
        """Sorts rows, and gives their players a dimension.

        Environments with one player answer in the order in which rows were asked;
        others as rows become ready.
        """
        rows = arrays[self._rows]
        order = np.argsort(rows, kind="stable")
        if not np.array_equal(rows[order], asked):
            raise SpecError(
                f"{self._name} was asked for rows {asked.tolist()} and answered for "
                f"{rows.tolist()}."
            )
        owners = np.repeat(rows, self.players)
        if not np.array_equal(arrays[self._owners], owners):
            raise SpecError(
                f"{self._name} answered for players of environments "
                f"{arrays[self._owners].tolist()}; each has {self.players}, as its "
                "max_num_players says."
            )
        return [
            array.reshape(len(rows), self.players, *array.shape[1:])[order]
            if has_players
            else array[order]
            for array, has_players in zip(arrays, self._has_players, strict=True)
        ]

    def infos_of(self, answer: Answer) -> dict[str, Any]:
        """Returns the infos in an answer, in arrays that belong to the caller.

        Entries of EnvPool with the name of a flag keep their own meaning.
        """
        none = np.zeros(len(answer.rows), bool)
        ended = none if answer.ended is None else answer.ended
        truncated = ended & answer.arrays[self._trunc]
        infos = {"terminated": ended & ~truncated, "truncated": truncated}
        for key, array in zip(self._keys, answer.arrays, strict=True):
            kind, _, path = key.partition(":")
            if kind not in ("info", "elapsed_step"):
                continue
            *parents, name = (path or key).split(".")
            inner: dict[str, Any] = infos
            for parent in parents:
                inner = inner.setdefault(parent, {})
            inner[name] = array.copy()
        return infos


def has_true(mask: Any) -> bool:
    """Returns True if anything in a mask is true."""
    # A fifth of the time of mask.any().
    return b"\1" in mask.tobytes()


def _dotted(path: str) -> str:
    """Writes a path in a nest as EnvPool does: `['a']['b']` is `a.b`."""
    return path.strip("[]'").replace("']['", ".")


def _as_meant(spec: ArraySpec) -> ArraySpec:
    """Returns the spec without the placeholder minimum that EnvPool writes.

    That is C++'s numeric_limits<float>::min(), the smallest number above zero.
    """
    if not isinstance(spec, BoundedArraySpec) or spec.dtype.kind != "f":
        return spec
    limits = np.finfo(spec.dtype)
    is_none = spec.minimum == limits.tiny
    if not is_none.any():
        return spec
    return spec.replace(minimum=np.where(is_none, limits.min, spec.minimum))


def _repeated(spec: ArraySpec, players: int) -> ArraySpec:
    """Returns the spec of one array per player, if there are several."""
    if players == 1:
        return spec
    shape = (players, *spec.shape)
    if isinstance(spec, BoundedArraySpec):
        return BoundedArraySpec(
            shape, spec.dtype, spec.minimum, spec.maximum, spec.name
        )
    return spec.replace(shape=shape)


class PoolActions:
    """Checks actions, and returns those of all players in one array.

    Example:
        >>> actions = PoolActions(BoundedArraySpec((), np.int64, 0, 2), 2, "step()")
        >>> actions.members([0, 2])
        array([0, 2])
    """

    def __init__(self, spec: ArraySpec, rows: int, call: str, players: int = 0) -> None:
        """Prepares for the actions of `rows` environments, given to `call`.

        Args:
            spec: The spec of one row's action.
            rows: The number of rows.
            call: The method that gets the actions, for messages.
            players: The number of players that act in each row: the first dimension of
                `spec`. 0 if there is no such dimension.
        """
        self._columns = ActionRows(spec, rows, call)
        self._choices = _choices(spec)
        self._rows = rows
        self._has_players = players > 0

    def members(self, action: NestedArray, *, ignored: Array | None = None) -> Array:
        """Returns the actions in an array, possibly the caller's own, or raises.

        Args:
            action: A batch of actions.
            ignored: A mask of rows whose action is not used.
        """
        # Hot: called once per batch step. Nearly all actions are choices in integer
        # arrays; read as unsigned numbers, negative ones are too large as well.
        if (
            self._choices
            and type(action) is np.ndarray
            and action.dtype == np.int64
            and action.shape == (self._rows,)
            and np.maximum.reduce(action.view(np.uint64)) < self._choices
        ):
            return action
        (column,) = self._columns.columns(action, ignored=ignored)
        return column.reshape(-1, *column.shape[2:]) if self._has_players else column


def _choices(spec: ArraySpec) -> int:
    """Returns the number of choices of an action; 0 if it is not a choice."""
    if not isinstance(spec, BoundedArraySpec) or spec.shape or spec.minimum != 0:
        return 0
    return int(spec.maximum) + 1 if spec.dtype == np.int64 else 0


_ROWS, _PLAYERS = "env_id", "players.env_id"


class PoolCalls:
    """Asks rows to reset or step; `recv` returns one array for each state key.

    Attributes:
        recv: Waits for an answer, in new arrays.
    """

    def __init__(self, pool: Any, acting: int) -> None:
        """Prepares to call a pool.

        Args:
            pool: The pool.
            acting: The number of players of a row that act in a step; 0 for one action.
        """
        self._keys = list(pool._action_keys)
        others = [key for key in self._keys if key not in (_ROWS, _PLAYERS)]
        (self._action,) = others
        self._dtype = np.dtype(pool.spec.action_array_spec[self._action].dtype)
        self._acting = max(1, acting)
        self._is_plain = self._keys == [_ROWS, _PLAYERS, self._action]
        self._send = pool._send
        self._reset = pool._reset
        self.recv = pool._recv

    def reset(self, rows: Array) -> None:
        """Asks rows to begin an episode."""
        self._reset(rows)

    def send(self, actions: Array, rows: Array) -> None:
        """Asks rows to act. EnvPool still reads the array of rows meanwhile."""
        # Hot: called once per batch step. EnvPool also reads the actions later, and
        # those belong to the caller, so copy them.
        own = actions.astype(self._dtype, order="C")
        if self._is_plain and self._acting == 1:
            self._send([rows, rows, own])
            return
        players = rows if self._acting == 1 else np.repeat(rows, self._acting)
        given = {_ROWS: rows, _PLAYERS: players, self._action: own}
        self._send([given[key] for key in self._keys])
