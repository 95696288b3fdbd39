"""PettingZoo: games of several agents."""

from envkit.extend import Scheme

SCHEME = Scheme(
    "envkit.adapters.pettingzoo.suite:load",
    title="PettingZoo",
    example="classic/tictactoe_v3",
    page="adapters/pettingzoo",
    package="pettingzoo",
    extra="pettingzoo",
    requires=(
        "gymnasium>=1.0",
        "pettingzoo>=1.24",
    ),
    lister="envkit.adapters.pettingzoo.suite:names",
)
