"""TextArena: games in text, for one player or several."""

from envkit.extend import Scheme, lazy_names

SCHEME = Scheme(
    "envkit.adapters.textarena.suite:load",
    title="TextArena",
    example="Wordle-v0",
    page="adapters/textarena",
    package="textarena",
    extra="textarena",
    requires=("textarena>=0.7",),
    lister="envkit.adapters.textarena.suite:names",
    preload="envkit.adapters.textarena.suite:preload",
)

__getattr__, __dir__ = lazy_names(
    __name__,
    dict.fromkeys(
        ["TextArenaWrapper", "load", "names"], "envkit.adapters.textarena.suite"
    ),
)
