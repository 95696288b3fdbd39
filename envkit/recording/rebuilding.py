"""Makes an environment of what its provenance says."""

from __future__ import annotations

import functools
import inspect
from typing import Any

from envkit import targets
from envkit.constructors import constructor
from envkit.errors import ConstructorError, MissingDependencyError, RecordingError
from envkit.plain_data import from_plain

__all__ = ["Rebuilt", "rebuilt"]

_POOLS = {
    "envkit.parallel.parallel_py_environment:ParallelPyEnvironment",
    "envkit.parallel.async_parallel_py_environment:AsyncParallelPyEnvironment",
}
_BATCH = "envkit.batched_py_environment:BatchedPyEnvironment"
# What these wrap does the same without them: a pool in lockstep, for one. Others write
# files, or wait.
_LEFT_OUT = {
    "envkit.blocking:Blocking",
    "envkit.realtime.logger:Logger",
    "envkit.realtime.throttle:Throttle",
    "envkit.realtime.timer:Timer",
    "envkit.recording.record:Record",
    "envkit.wrappers.profiling:PerformanceProfiler",
    "envkit.wrappers.video.record_video:RecordVideo",
}
_REAL_TIME = "envkit.realtime.environment:RealTimeEnvironment"


class Rebuilt:
    """Makes an environment, and notes what had to be taken for granted.

    Attributes:
        assumed: Sentences about what is not known.
    """

    def __init__(self) -> None:
        self.assumed: list[str] = []

    def make(self, recipe: dict[str, Any]) -> Any:
        """Makes an environment of a recipe, seeded as it was."""
        env = self._base(recipe)
        for layer in reversed(recipe["wrappers"]):
            env = self._wrapped(env, layer)
        if recipe["seed"] is not None:
            env.seed(from_plain(recipe["seed"]))
        return env

    def _base(self, recipe: dict[str, Any]) -> Any:
        if "environments" in recipe:
            return self._batch(recipe)
        arguments = recipe["arguments"]
        if arguments is None:
            self.assumed.append(
                f"The arguments of {recipe['id']} are not known; none were given."
            )
            arguments = {}
        given = self._values(arguments, recipe["id"])
        return self._made(recipe["id"], given, recipe["arguments"] is not None)

    def _made(self, name: str, arguments: dict[str, Any], are_known: bool) -> Any:
        if "<" in name or name.startswith(("__main__:", "__mp_main__:")):
            raise RecordingError(
                f"It was made by {name}, which no other program can import. Name what "
                "makes it with --env, as 'module:function'."
            )
        try:
            return constructor(name, **arguments)()
        except (ConstructorError, MissingDependencyError, ValueError) as error:
            raise RecordingError(f"{name} cannot be made again: {error}") from error
        except TypeError as error:
            if are_known:
                raise
            raise RecordingError(
                f"{name} cannot be made again, as the recording does not know with "
                f"which arguments: {error}. Name what makes it with --env, as "
                "'module:function'."
            ) from error

    def _batch(self, recipe: dict[str, Any]) -> Any:
        recipes = [one for one in recipe["environments"] for _ in range(one["count"])]
        if recipe["class"] == _BATCH:
            batch = targets.load(_BATCH, _BATCH)
            return batch([self.make(one) for one in recipes], multithreading=False)
        if recipe["class"] not in _POOLS:
            raise RecordingError(
                f"It was a {recipe['class']}, which is made of other environments in a "
                "way that is not known. Name what makes it with --env."
            )
        # On every backend it is the same; and this one starts no processes.
        pool = targets.load("pool", sorted(_POOLS)[1])
        return pool(
            [functools.partial(self.make, one) for one in recipes],
            backend="inline",
            **from_plain(recipe["arguments"]),
        )

    def _wrapped(self, env: Any, layer: dict[str, Any]) -> Any:
        name = layer["class"]
        if name in _LEFT_OUT:
            return env
        if "<" in name or name.startswith(("__main__:", "__mp_main__:")):
            raise RecordingError(
                f"It was wrapped in {name}, which no other program can import. Name "
                "what makes it with --env, as 'module:function'."
            )
        wrapper = targets.load(name, name)
        arguments = self._values(layer["arguments"], name)
        if name == _REAL_TIME and arguments["host"] != "virtual":
            raise RecordingError(
                "It ran in real time, which does not come again. Recordings of "
                "host='virtual' can be checked."
            )
        known = list(inspect.signature(wrapper).parameters)[1:]
        unknown = [
            parameter
            for parameter in known
            if parameter not in arguments and parameter != "handle_auto_reset"
        ]
        if unknown:
            self.assumed.append(
                f"Of the arguments of {name}, {', '.join(unknown)} are not known; none "
                "were given."
            )
        try:
            return wrapper(
                env, **{key: arguments[key] for key in arguments if key in known}
            )
        except TypeError as error:
            raise RecordingError(f"{name} cannot be made again: {error}") from error

    def _values(self, arguments: dict[str, Any], owner: str) -> dict[str, Any]:
        def read(tag: str, data: Any) -> Any:
            if tag == "$name":
                return targets.load(data, data)
            if tag == "$constructor":
                made = self._values(data["arguments"] or {}, data["id"])
                return constructor(data["id"], **made)
            if tag == "$partial":
                function, args, kwargs = (from_plain(part, read) for part in data)
                return functools.partial(function, *args, **kwargs)
            raise RecordingError(
                f"{owner} was given {data}, which the recording does not hold. Name "
                "what makes it with --env, as 'module:function'."
            )

        return {key: from_plain(item, read) for key, item in arguments.items()}


def rebuilt(provenance: dict[str, Any]) -> tuple[Any, list[str]]:
    """Returns an environment as it was, and what had to be taken for granted."""
    builder = Rebuilt()
    return builder.make(provenance), builder.assumed
