"""Gymnasium: its environments for envkit, and envkit's for Gymnasium."""

from envkit.extend import Scheme

SCHEME = Scheme(
    "envkit.adapters.gymnasium.suite:load",
    title="Gymnasium",
    example="CartPole-v1",
    page="adapters/gymnasium",
    package="gymnasium",
    extra="gymnasium",
    requires=("gymnasium>=1.0",),
    lister="envkit.adapters.gymnasium.suite:names",
    preload="envkit.adapters.gymnasium.suite:preload",
)
