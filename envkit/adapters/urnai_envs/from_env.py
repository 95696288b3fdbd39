"""`from_urnai`: an environment of URNAI as an envkit environment."""

from __future__ import annotations

import functools
from typing import Any

from envkit.adapters.env_adapter import EnvAdapter, Result
from envkit.adapters.env_adapters.returned import step_reader
from envkit.specs.validation import describe
from envkit.types import NestedSpec

__all__ = ["SeededUrnaiAdapter", "UrnaiAdapter", "from_urnai"]

_VERBS = ("start", "step", "reset", "close")


def from_urnai(
    env: Any,
    *,
    action_wrapper: Any = None,
    state_builder: Any = None,
    reward_builder: Any = None,
    observation_spec: NestedSpec = None,
    action_spec: NestedSpec = None,
    **settings: Any,
) -> EnvAdapter:
    """Makes an envkit environment of one of URNAI's.

    URNAI does not say what an environment takes and gives. Specs of observations are
    inferred from the first one, as `EnvAdapter` does it, and actions are those of an
    action wrapper, if one is given or the environment has `get_action_wrapper`.

    Args:
        env: An environment, its class, or something to call that makes one. Only the
            latter two can be sent to workers: `functools.partial(from_urnai, MyEnv)`.
        action_wrapper: Chooses actions by their number, over several steps if it has
            to; what it excludes is not legal. Or its class, or something to call with
            the environment that makes one.
        state_builder: Makes observations of URNAI's, with `build_state`; or its class,
            or a function.
        reward_builder: Makes rewards, with `get_reward(obs, reward, done)`; or its
            class, or a function of the same three.
        observation_spec: The specs of an observation, if they are not to be inferred.
        action_spec: The specs of an action, if there is no action wrapper.
        settings: Attributes of `EnvAdapter` that are to be different, such as
            `num_actions`, `actions`, `max_lengths` and `floats`.

    Example:
        >>> from envkit.adapters.urnai import GymEnv
        >>> env = from_urnai(GymEnv("CartPole-v1"))
        >>> int(env.action_spec().maximum), env.reset().observation.shape
        (1, (4,))
        >>> env.close()
    """
    kind = SeededUrnaiAdapter if _can_be_seeded(env) else UrnaiAdapter
    return kind(
        env,
        action_wrapper,
        state_builder,
        reward_builder,
        observation_spec,
        action_spec,
        **settings,
    )


class UrnaiAdapter(EnvAdapter):
    """What `from_urnai` makes; `env_instance` is the environment of URNAI."""

    def __init__(
        self,
        env: Any,
        action_wrapper: Any = None,
        state_builder: Any = None,
        reward_builder: Any = None,
        observation_spec: NestedSpec = None,
        action_spec: NestedSpec = None,
        **settings: Any,
    ) -> None:
        """Takes the arguments of `from_urnai`."""
        super().__init__(**settings)
        _check_env(env)
        self.given_env = env
        self.given_wrapper = action_wrapper
        self.action_wrapper: Any = None
        self.state_builder = _builder_of(state_builder, "build_state")
        self.reward_builder = _builder_of(reward_builder, "get_reward")
        self.declared_specs = observation_spec, action_spec
        said = action_spec, self.actions, self.num_actions
        self.asks_for_wrapper = all(part is None for part in said)
        self.last_seen: Any = None

    @property
    def can_be_made_again(self) -> bool:
        """Whether it was given a class, or a function, and no environment."""
        return isinstance(self.given_env, type) or not _is_env(self.given_env)

    def start(self) -> Any:
        """Makes the environment of URNAI, and starts it if it has not started."""
        env = self.given_env
        if self.can_be_made_again:
            env = env()
            _check_env(env, made=True)
        if getattr(env, "env_instance", None) is None:
            env.start()
        self._choose_actions(env)
        return env

    def _choose_actions(self, env: Any) -> None:
        wrapper = self.given_wrapper
        if isinstance(wrapper, type):
            wrapper = wrapper()
        elif wrapper is not None and not hasattr(wrapper, "get_actions"):
            wrapper = wrapper(env)
        elif wrapper is None and self.asks_for_wrapper:
            wrapper = getattr(env, "get_action_wrapper", lambda: None)()
        if wrapper is not None:
            self.action_wrapper = wrapper
            named = getattr(wrapper, "get_named_actions", lambda: None)()
            self.actions = list(map(str, named or wrapper.get_actions()))
            self.legal_actions = self.not_excluded

    def not_excluded(self, obs: Any) -> list[bool]:
        """Says which actions the action wrapper does not exclude."""
        excluded = set(self.action_wrapper.get_excluded_actions(self.last_seen))
        return [action not in excluded for action in self.action_wrapper.get_actions()]

    def reset(self) -> Any:  # type: ignore[override]  # an author's
        """Begins an episode; so do the wrapper and the builders."""
        for part in (self.action_wrapper, self.state_builder, self.reward_builder):
            if hasattr(part, "reset"):
                part.reset()
        return self.built(self.env_instance.reset())

    def step(self, action: Any) -> Result:  # type: ignore[override]  # an author's
        """Applies an action, for as many steps as it takes."""
        wrapper = self.action_wrapper
        if wrapper is None:
            return self.stepped(action)
        place = wrapper.get_actions()[action]
        total = 0.0
        while True:
            result = self.stepped(wrapper.get_action(place, self.last_seen))
            total += result.reward
            over = result.terminated or result.truncated
            if over or wrapper.is_action_done():
                return result._replace(reward=total)

    def stepped(self, action: Any) -> Result:
        """Steps once."""
        name = type(self.env_instance).__name__
        read = step_reader(name, self.step_returns)(self.env_instance.step(action))
        reward = read.reward
        if self.reward_builder is not None:
            build = getattr(self.reward_builder, "get_reward", self.reward_builder)
            over = read.terminated or read.truncated
            reward = build(read.observation, reward, over)
        observation = self.built(read.observation)
        return Result(observation, reward, read.terminated, read.truncated, read.info)

    def built(self, observation: Any) -> Any:
        """Makes an observation of one of URNAI's."""
        self.last_seen = observation
        builder = self.state_builder
        if builder is None:
            return observation
        return getattr(builder, "build_state", builder)(observation)

    def close(self) -> None:
        """Closes the environment of URNAI."""
        self.env_instance.close()

    def observation_spec(self) -> NestedSpec:
        """Returns the specs that were declared; `None` to infer them."""
        return self.declared_specs[0]

    def action_spec(self) -> NestedSpec:
        """Returns the specs that were declared; `None` to count the actions."""
        return self.declared_specs[1]


class SeededUrnaiAdapter(UrnaiAdapter):
    """The same for environments that have a method `seed`, as URNAI's have not."""

    def seed(self, seed: Any) -> None:
        """Seeds the environment."""
        self.env_instance.seed(seed)


def _builder_of(given: Any, method: str) -> Any:
    """Makes a builder of its class; a function may be a class, too."""
    is_class = isinstance(given, type) and hasattr(given, method)
    return given() if is_class else given


def _can_be_seeded(env: Any) -> bool:
    while isinstance(env, functools.partial):
        env = env.func
    return callable(getattr(env, "seed", None))


def _is_env(env: Any) -> bool:
    return all(callable(getattr(env, verb, None)) for verb in _VERBS)


def _check_env(env: Any, *, made: bool = False) -> None:
    """Raises unless it is an environment of URNAI or, unless made, may make one."""
    if _is_env(env) or (callable(env) and not isinstance(env, type) and not made):
        return
    what = f"the class {env.__name__}" if isinstance(env, type) else describe(env)
    raise TypeError(
        f"from_urnai() {'made' if made else 'was given'} {what}, which is no "
        f"environment of URNAI: that has the methods {', '.join(_VERBS)}."
    )
