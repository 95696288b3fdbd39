"""dm_control: physical tasks from its suite."""

from envkit.extend import Scheme, lazy_names

# A dependency of dm_control has no wheels for Python 3.13, and dm_control does not
# start with mujoco 4 yet.
SCHEME = Scheme(
    "envkit.adapters.dm_control.suite:load_by_path",
    title="dm_control",
    example="cartpole/swingup",
    page="adapters/dm_control",
    package="dm_control",
    extra="dm-control",
    requires=(
        "dm-control>=1.0.16; python_version < '3.13'",
        "mujoco<4; python_version < '3.13'",
    ),
    lister="envkit.adapters.dm_control.suite:names",
    preload="envkit.adapters.dm_control.suite:preload",
)

__getattr__, __dir__ = lazy_names(
    __name__,
    dict.fromkeys(
        [
            "DmControlWrapper",
            "is_available",
            "load",
            "load_by_path",
            "load_pixels",
            "names",
            "wrap_env",
        ],
        "envkit.adapters.dm_control.suite",
    ),
)
