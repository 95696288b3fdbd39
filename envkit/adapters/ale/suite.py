"""ale-py: games of the Arcade Learning Environment by name, single and in batches.

The state of a single game includes what ale-py's own `clone_state` leaves out:

- With sticky actions, a frame may repeat the action of the previous frame, which ale-py
  does not reveal. The adapter finds it by trying: it plays one more frame per action
  and compares the memory.
- The screen shows the last frame played, whatever has been restored since.
"""

from __future__ import annotations

import difflib
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from envkit.adapters.foreign import forwarded, require
from envkit.adapters.gymnasium import suite as suite_gymnasium
from envkit.adapters.gymnasium.vector import GymnasiumVectorWrapper
from envkit.adapters.quiet import hush_imported
from envkit.py_environment import PyEnvironment
from envkit.seeding import seed_per_row
from envkit.time_step import AutoReset
from envkit.types import Array, Seed

__all__ = ["AtariVectorWrapper", "load", "load_vector", "names"]

# The version for names without one.
_NEWEST = "v5"


def load(
    environment_name: str,
    discount: float = 1.0,
    max_episode_steps: int | None = None,
    gym_env_wrappers: Sequence[Callable[[Any], Any]] = (),
    env_wrappers: Sequence[Callable[[PyEnvironment], PyEnvironment]] = (),
    gym_kwargs: Mapping[str, Any] | None = None,
    render_kwargs: Mapping[str, Any] | None = None,
    *,
    vectorization: str | None = None,
    **kwargs: Any,
) -> PyEnvironment:
    """Makes a game of ale-py, single or as a batch.

    `envkit.make("ale:Pong")` calls this, and so does
    `envkit.make("ale:Pong", num_envs=64, vectorization="native")`.

    Args:
        environment_name: The game: `"Pong"` or `"pong"` for its newest version,
            `"Pong-v5"` or `"ALE/Pong-v5"` for version 5, `"PongNoFrameskip-v4"` for an
            older one.
        discount: What later rewards are worth.
        max_episode_steps: The number of steps after which an episode is truncated, in
            addition to the limit of frames that the game is registered with.
        gym_env_wrappers: Wrappers for ale-py's environment, innermost first.
        env_wrappers: Wrappers for the envkit environment, innermost first.
        gym_kwargs: Keyword arguments for the game.
        render_kwargs: More of them, about rendering.
        vectorization: `None` for a single game, `"native"` for ale-py's own vector
            environment; then `load_vector` says which arguments there are.
        **kwargs: More of them: `frameskip`, `repeat_action_probability` (sticky
            actions), `full_action_space`, `obs_type`, `mode`, `difficulty`,
            `render_mode`, `max_num_frames_per_episode`.

    Example:
        >>> env = load("Pong", obs_type="ram", frameskip=4)
        >>> env.reset().observation.shape, env.action_spec().maximum
        ((128,), array(5))
        >>> env.close()
    """
    if vectorization == "native":
        _refuse_single(max_episode_steps, gym_env_wrappers)
        options = {**(gym_kwargs or {}), **(render_kwargs or {}), **kwargs}
        return load_vector(
            environment_name, discount=discount, env_wrappers=env_wrappers, **options
        )
    if vectorization is not None:
        raise ValueError(
            "vectorization must be None for a single game, or 'native' for ale-py's "
            f"own vector environment, got {vectorization!r}."
        )
    return suite_gymnasium.load(
        _id_of(environment_name),
        discount,
        max_episode_steps,
        [_saving_all, *gym_env_wrappers],
        env_wrappers,
        gym_kwargs,
        render_kwargs,
        **kwargs,
    )


def load_vector(
    environment_name: str,
    num_envs: int = 1,
    discount: float = 1.0,
    env_wrappers: Sequence[Callable[[PyEnvironment], PyEnvironment]] = (),
    *,
    autoreset: AutoReset | str = AutoReset.NEXT_STEP,
    **kwargs: Any,
) -> PyEnvironment:
    """Makes a batch of a game that ale-py itself steps and preprocesses.

    Args:
        environment_name: The game, as for `load`. Its version determines the
            probability of sticky actions and the number of frames per step.
        num_envs: The number of rows.
        discount: The discount of steps that do not terminate the episode.
        env_wrappers: Wrappers for the batch, innermost first.
        autoreset: When the episode after a `LAST` begins.
        **kwargs: Arguments of `ale_py.vector_env.AtariVectorEnv`: `num_threads`,
            `img_height`, `img_width`, `grayscale`, `stack_num`, `frameskip`, `maxpool`,
            `noop_max`, `episodic_life`, `reward_clipping`, `use_fire_reset`,
            `repeat_action_probability`.

    Example:
        >>> env = load_vector("Pong", num_envs=2, img_height=42, img_width=42)
        >>> env.reset().observation.shape
        (2, 4, 42, 42)
        >>> env.close()
    """
    name = _id_of(environment_name)
    import gymnasium
    from ale_py.vector_env import AtariVectorEnv

    hush_imported()
    order = AutoReset.of(autoreset)
    is_same = order is AutoReset.SAME_STEP
    options = {**gymnasium.spec(name).kwargs, **kwargs}
    options["autoreset_mode"] = "SameStep" if is_same else "NextStep"
    env: PyEnvironment = AtariVectorWrapper(
        AtariVectorEnv(num_envs=num_envs, **options),
        discount,
        auto_reset=order is not AutoReset.DISABLED,
    )
    for wrap in env_wrappers:
        env = wrap(env)
    return env


def names() -> list[str]:
    """Lists all games with their versions, as `load` takes them.

    Example:
        >>> {"Pong-v5", "PongNoFrameskip-v4"} <= set(names())
        True
    """
    return sorted(key.removeprefix("ALE/") for key in _registered())


def _registered() -> set[str]:
    require("ale_py", needed_by="suite_ale", extra="atari")
    require("gymnasium", needed_by="suite_ale", extra="atari")
    import ale_py
    import gymnasium

    gymnasium.register_envs(ale_py)
    return {
        key
        for key, spec in gymnasium.registry.items()
        if str(spec.entry_point).startswith("ale_py.")
    }


def _id_of(name: str) -> str:
    """Returns the id under which a game is registered."""
    known = _registered()
    # ale-py's own names are in lower case with underscores.
    title = name if name != name.lower() else name.title().replace("_", "")
    for candidate in (name, f"ALE/{title}", f"ALE/{title}-{_NEWEST}"):
        if candidate in known:
            return candidate
    near = difflib.get_close_matches(title, sorted(known), n=3, cutoff=0.5)
    hint = f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
    raise ValueError(
        f"ale-py has no game named {name!r}.{hint} A name is 'Pong', 'Pong-v5' or "
        "'PongNoFrameskip-v4'; ale_py.roms.get_all_rom_ids() names all games."
    )


def _refuse_single(max_episode_steps: Any, wrappers: Sequence[Any]) -> None:
    if max_episode_steps is not None or wrappers:
        raise ValueError(
            "max_episode_steps and gym_env_wrappers are for single games. With "
            "vectorization='native', max_num_frames_per_episode limits episodes, and "
            "env_wrappers wraps the batch."
        )


# Seeds are int32, and a negative one means none.
_SEEDS = 2**31
_NO_SEED = -1


class AtariVectorWrapper(GymnasiumVectorWrapper):
    """Wraps an `AtariVectorEnv`, which has its own threads.

    It is a `GymnasiumVectorWrapper` with two differences: each row has its own seed,
    because each game has its own generator; and `reset` can reset single rows.

    | its `autoreset_mode`   | `auto_reset` | `autoreset`                        |
    |------------------------|--------------|------------------------------------|
    | NEXT_STEP              | `True`       | NEXT_STEP                          |
    | SAME_STEP              | `True`       | SAME_STEP                          |
    | NEXT_STEP              | `False`      | DISABLED, and `reset` takes a mask |
    """

    def __init__(
        self,
        vector_env: Any,
        discount: float = 1.0,
        auto_reset: bool = True,
        simplify_box_bounds: bool = True,
        *,
        reset_options: Mapping[str, Any] | None = None,
    ) -> None:
        """Wraps a vector environment; closing the wrapper closes it.

        Args:
            vector_env: An `AtariVectorEnv` whose `batch_size` is all of its games.
            discount: The discount of steps that do not terminate the episode.
            auto_reset: Whether episodes begin automatically.
            simplify_box_bounds: Whether bounds that are the same for every element
                become a single number in the specs.
            reset_options: What resets pass on as their `options`.
        """
        _check_moves_together(vector_env)
        self._seeded = _SeededRows(vector_env)
        super().__init__(
            self._seeded,
            discount,
            auto_reset,
            simplify_box_bounds,
            reset_options=reset_options,
            # In its NEXT_STEP mode, it only resets a row that is stepped after the end.
            autoreset_mode=None if auto_reset else "Disabled",
        )

    @property
    def vector_env(self) -> Any:
        """ale-py's vector environment."""
        return self._seeded.env

    def seed(self, seed: Seed) -> None:
        """Seeds each row at the next reset: from a single seed, or with its own.

        Under DISABLED, a row that is reset alone takes its seed at that time.
        """
        rows = seed_per_row(seed, self._steps.rows)
        drawn = np.random.SeedSequence().generate_state(self._steps.rows).tolist()
        self._seeded.seeds = np.array(
            [
                (new if own is None else own) % _SEEDS
                for own, new in zip(rows, drawn, strict=True)
            ],
            np.int64,
        )


class _SeededRows:
    """Wraps a vector environment, and gives each row its pending seed at a reset.

    Attributes:
        env: The vector environment.
        seeds: The seeds of its games; `_NO_SEED` for none.
    """

    def __init__(self, vector_env: Any) -> None:
        self.env = vector_env
        self.seeds: Array = np.full(vector_env.num_envs, _NO_SEED, np.int64)

    def __getattr__(self, name: str) -> Any:
        return forwarded(self, lambda: self.env, name)

    def reset(
        self, *, seed: Any = None, options: Mapping[str, Any] | None = None
    ) -> Any:
        mask = (options or {}).get("reset_mask", slice(None))
        result = self.env.reset(seed=self.seeds[mask], options=options)
        self.seeds[mask] = _NO_SEED
        return result


def _check_moves_together(vector_env: Any) -> None:
    rows = getattr(vector_env, "num_envs", None)
    size = getattr(vector_env, "batch_size", rows)
    if size != rows:
        raise ValueError(
            f"AtariVectorWrapper was given an AtariVectorEnv with batch_size={size} "
            f"and num_envs={rows}, which is its asynchronous mode. Make it without a "
            "batch_size."
        )


# After this many repetitions in a row, an action has almost certainly stuck.
_ENOUGH = 60


class _SavedGame(NamedTuple):
    """Holds a state of ale-py, and the facts that ale-py's state lacks.

    Attributes:
        state: The state, including the random generator.
        next_frame: The memory after another frame; empty without sticky actions.
        screen: The picture of the screen.
    """

    state: Any
    next_frame: bytes
    screen: Array


def _saving_all(env: Any) -> Any:
    """Returns a game, in its wrappers, with complete states."""
    env.unwrapped.__class__ = _kind_of_games()
    return env


@functools.cache
def _kind_of_games() -> Any:
    import ale_py
    from ale_py.env import AtariEnv

    noop = ale_py.Action.NOOP

    class SavedAtariEnv(AtariEnv):  # type: ignore[misc]  # a class of another library
        """An `AtariEnv` whose states are complete."""

        # The picture to show until the next frame is played, if the screen is outdated.
        _saved_screen: Array | None = None
        # The action requested last.
        _asked: Any = noop

        def reset(self, **kwargs: Any) -> Any:
            self._saved_screen, self._asked = None, noop
            return super().reset(**kwargs)

        def step(self, action: Any) -> Any:
            self._saved_screen = None
            if not self.continuous:
                self._asked = self._action_set[action]
            return super().step(action)

        def render(self) -> Any:
            if self._saved_screen is not None and self.render_mode == "rgb_array":
                return self._saved_screen.copy()
            return super().render()

        def get_state(self) -> _SavedGame:
            if self._sticks() and self.continuous:
                raise NotImplementedError  # too many actions to try
            if self._saved_screen is None:
                self._saved_screen = self.ale.getScreenRGB()
            state = self.clone_state(include_rng=True)
            next_frame = self._next_frame(state) if self._sticks() else b""
            # The attribute's own array, so that it is pickled only once.
            return _SavedGame(state, next_frame, self._saved_screen)

        def set_state(self, state: _SavedGame) -> None:
            self._saved_screen = state.screen
            self.restore_state(state.state)
            if not state.next_frame:
                return
            # The action requested last is by far the most likely.
            for action in (self._asked, *self.ale.getLegalActionSet()):
                for _ in range(_ENOUGH):
                    self.ale.act(action, 1.0)
                if self._next_frame(state.state) == state.next_frame:
                    return

        def _sticks(self) -> bool:
            sticks: bool = self.ale.getFloat("repeat_action_probability") > 0
            return sticks

        def _next_frame(self, state: Any) -> bytes:
            """Returns the memory after another frame, and restores the state."""
            self.restore_state(state)
            self.ale.act(noop, 1.0)
            memory: bytes = self.ale.getRAM().tobytes()
            self.restore_state(state)
            return memory

    return SavedAtariEnv
