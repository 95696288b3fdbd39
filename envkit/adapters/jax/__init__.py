"""Environments written in JAX, as compiled batches."""

from envkit.extend import Scheme

# gymnax imports six without requiring it.
GYMNAX = Scheme(
    "envkit.adapters.jax.gymnax:load",
    title="gymnax",
    example="CartPole-v1",
    page="adapters/jax",
    package="gymnax",
    extra="gymnax",
    requires=(
        "gymnax>=0.0.8",
        "six",
    ),
    lister="envkit.adapters.jax.gymnax:names",
)
