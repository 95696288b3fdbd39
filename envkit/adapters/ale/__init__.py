"""Atari: ale-py's games, single or in batches that ale-py steps."""

from envkit.extend import Scheme, lazy_names

SCHEME = Scheme(
    "envkit.adapters.ale.suite:load",
    title="Atari (ale-py)",
    example="Pong-v5",
    page="adapters/atari",
    package="ale_py",
    extra="atari",
    requires=(
        "ale-py>=0.12.1",
        "gymnasium>=1.0",
    ),
    lister="envkit.adapters.ale.suite:names",
    batched_by="vectorization",
)

__getattr__, __dir__ = lazy_names(
    __name__,
    dict.fromkeys(
        ["AtariVectorWrapper", "load", "load_vector", "names"],
        "envkit.adapters.ale.suite",
    ),
)
