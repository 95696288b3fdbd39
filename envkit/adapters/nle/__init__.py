"""NLE, the NetHack Learning Environment: its tasks by id."""

from envkit.extend import Scheme, lazy_names

SCHEME = Scheme(
    "envkit.adapters.nle.suite:load",
    title="NLE (NetHack)",
    example="NetHackScore-v0",
    page="adapters/nle",
    package="nle",
    extra="nle",
    requires=("gymnasium>=1.0", "nle>=1.3"),
    lister="envkit.adapters.nle.suite:names",
    preload="envkit.adapters.nle.suite:preload",
)

__getattr__, __dir__ = lazy_names(
    __name__,
    dict.fromkeys(["NleWrapper", "load", "names"], "envkit.adapters.nle.suite"),
)
