"""EnvPool: batches that are stepped in C++."""

from envkit.extend import Scheme

# There are no wheels for Python 3.10.
SCHEME = Scheme(
    "envkit.adapters.envpool.suite:load",
    title="EnvPool",
    example="CartPole-v1",
    page="adapters/envpool",
    package="envpool",
    extra="envpool",
    requires=("envpool>=1.1; python_version >= '3.11'",),
    lister="envkit.adapters.envpool.suite:names",
    batched_by="num_envs",
)
