"""Minari: datasets as recordings, and recordings as datasets."""

from envkit.extend import Scheme, lazy_names

# A dataset may be remote, so its id is an address.
SCHEME = Scheme(
    "envkit.adapters.minari.datasets:MinariReplay",
    title="Minari",
    page="adapters/minari",
    package="minari",
    extra="minari",
    requires=(
        "gymnasium>=1.0",
        "minari[hdf5]>=0.5.4",
        "pillow>=10",
    ),
    address="D4RL/door/human-v2",
    takes="the id of a dataset",
)

_HOMES = dict.fromkeys(
    ["MinariReplay", "from_minari", "to_minari"], "envkit.adapters.minari.datasets"
)

__all__ = sorted(_HOMES)

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
