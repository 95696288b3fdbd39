"""Reasoning Gym: questions whose answers are scored, one an episode."""

from envkit.extend import Scheme, lazy_names

SCHEME = Scheme(
    "envkit.adapters.reasoning_gym.suite:load",
    title="Reasoning Gym",
    example="leg_counting",
    page="adapters/reasoning_gym",
    package="reasoning_gym",
    extra="reasoning-gym",
    requires=("reasoning-gym>=0.1.20",),
    lister="envkit.adapters.reasoning_gym.suite:names",
    preload="envkit.adapters.reasoning_gym.suite:preload",
)

__getattr__, __dir__ = lazy_names(
    __name__,
    dict.fromkeys(
        ["ReasoningGymWrapper", "load", "names"], "envkit.adapters.reasoning_gym.suite"
    ),
)
