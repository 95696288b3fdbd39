"""Rebuilds a recording's environment, and compares its results bit for bit.

A recording stores the call in which each time step came, so the same calls can be made
again: for a batch, with all its rows together, and with the same rows reset or held.
"""

from __future__ import annotations

import collections
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from envkit import nest, registry
from envkit.errors import ConstructorError, RecordingError, SpecError
from envkit.extend import hand_options
from envkit.provenance import PlainDataError, dumped, from_plain, to_plain
from envkit.py_environment import PyEnvironment
from envkit.recording.format import EPISODE, check_provenance, reading
from envkit.recording.stored import Episode, Recording
from envkit.registry import constructor
from envkit.time_step import StepType, TimeStep
from envkit.types import Array

__all__ = [
    "Difference",
    "Place",
    "ReplayOutcome",
    "check",
    "foreign_names",
    "rebuilt",
]

_LOCKSTEP = "envkit.parallel.parallel_py_environment:ParallelPyEnvironment"
_ASYNC = "envkit.parallel.async_parallel_py_environment:AsyncParallelPyEnvironment"
_BATCH = "envkit.batched_py_environment:BatchedPyEnvironment"
# Wrappers that do not change an environment's results: they make a pool step in
# lockstep, write files, or wait.
_LEFT_OUT = {
    "envkit.blocking:Blocking",
    "envkit.realtime.pacing:Logger",
    "envkit.realtime.pacing:Throttle",
    "envkit.realtime.pacing:Timer",
    "envkit.recording.record:Record",
    "envkit.wrappers.log_episodes:LogEpisodes",
    "envkit.wrappers.profiling:PerformanceProfiler",
    "envkit.wrappers.video:RecordVideo",
}
# These wrappers take a constructor instead of an environment.
_MAKING = {
    "envkit.wrappers.rebuild_after:RebuildAfter",
    "envkit.wrappers.standby:StandbyEnvironment",
}
_REAL_TIME = "envkit.realtime.environment:RealTimeEnvironment"
# The modules of envkit's environments that need only plain arguments, and of its
# wrappers, which take the environment.
_OWN_ENVIRONMENTS = (
    "envkit.envs:",
    "envkit.envs.",
    "envkit.testing:",
    "envkit.testing.envs:",
)
_OWN_WRAPPERS = (
    "envkit.wrappers:",
    "envkit.wrappers.",
    "envkit.realtime.environment:",
)

_NAME_IT = "Name what makes it with --env, as 'module:function'."
# The events between two calls.
_CALLS = {"seed", "seed_rows", "options", "set_state", "replaced"}
_FIRST, _LAST = int(StepType.FIRST), int(StepType.LAST)


def foreign_names(known: dict[str, Any]) -> list[str]:
    """Returns the names to import and call in order to rebuild an environment.

    envkit's own environments, wrappers and pools are left out.

    Args:
        known: A provenance that has passed `check_provenance`.

    Example:
        >>> from envkit import constructor, make
        >>> foreign_names(make("Catch").provenance())
        []
        >>> known = constructor("my_game:make_board", size=3).plain_recipe()
        >>> foreign_names(known)
        ['my_game:make_board']
    """
    with reading("The provenance"):
        return list(dict.fromkeys(_names_in(known)))


def _names_in(recipe: dict[str, Any]) -> Iterator[str]:
    if "environments" in recipe:
        for one in recipe["environments"]:
            yield from _names_in(one)
    else:
        yield from _name_of_id(recipe["id"])
    yield from _names_of_values(recipe["arguments"])
    for layer in recipe["wrappers"]:
        name = layer["class"]
        if name not in _LEFT_OUT and not _is_nowhere(name):
            if not _is_own(name, _OWN_WRAPPERS):
                yield name
            yield from _names_of_values(layer["arguments"])


def _name_of_id(name: str) -> Iterator[str]:
    target: Any = name
    if ":" not in name:
        try:
            target = constructor(name).build
        except ValueError:  # no environment has this name
            return
    if not (_is_nowhere(name) or _is_own(target, _OWN_ENVIRONMENTS)):
        yield name


def _names_of_values(data: Any) -> Iterator[str]:
    """Yields the names in arguments."""
    if isinstance(data, list):
        for item in data:
            yield from _names_of_values(item)
    elif isinstance(data, dict):
        for key, item in data.items():
            if key == "$name":
                yield str(item)
            elif key == "$constructor" and isinstance(item, dict):
                yield from _name_of_id(str(item.get("id")))
            yield from _names_of_values(item)


def _is_own(target: Any, places: tuple[str, ...]) -> bool:
    """True for a class of envkit's own, defined in one of some modules."""
    if not isinstance(target, str) or not target.startswith(places):
        return False
    try:
        found: Any = registry.load(target, target)
    except Exception:  # making it raises the error, with its message
        return False
    # A name may also lead to an object that a module has imported.
    return (
        isinstance(found, type)
        and issubclass(found, PyEnvironment)
        and f"{found.__module__}:".startswith(places)
    )


def _is_nowhere(name: str) -> bool:
    """True if no other program can import a name."""
    return "<" in name or name.startswith(("__main__:", "__mp_main__:"))


def rebuilt(provenance: dict[str, Any]) -> tuple[Any, list[str]]:
    """Rebuilds an environment from its provenance.

    It imports and calls the functions and classes that the provenance names.

    Args:
        provenance: The result of `provenance()`, for example of a `Recording`.

    Returns:
        The environment with its wrappers and its seed, and sentences about facts that
        the provenance lacks.

    Raises:
        RecordingError: The provenance lacks something, or its environment cannot be
            made again.

    Example:
        >>> from envkit import make
        >>> env, assumed = rebuilt(make("Catch", rows=5, seed=7).provenance())
        >>> env.provenance()["arguments"], assumed
        ({'rows': 5, 'seed': 7}, [])
    """
    check_provenance(provenance)
    builder = _Builder()
    with reading(provenance["id"], "cannot be made again"):
        return builder.make(provenance), builder.assumed


def _makes(layer: dict[str, Any]) -> bool:
    """True for a wrapper that builds its own environment."""
    return layer["class"] in _MAKING


class _Builder:
    """Makes an environment from a recipe.

    Attributes:
        assumed: Sentences about facts that the recipe lacks.
    """

    def __init__(self) -> None:
        self.assumed: list[str] = []

    def make(self, recipe: dict[str, Any]) -> Any:
        """Makes the environment of a recipe, with its wrappers and its seed."""
        wrappers = recipe["wrappers"]
        outer = next((i for i, layer in enumerate(wrappers) if _makes(layer)), None)
        if outer is None:
            env = self._base(recipe)
        else:
            inside = {**recipe, "wrappers": wrappers[outer + 1 :], "seed": None}
            env = self._wrapped(functools.partial(self.make, inside), wrappers[outer])
        for layer in reversed(wrappers[:outer]):
            env = self._wrapped(env, layer)
        if recipe["seed"] is not None:
            env.seed(_read(recipe["seed"], f"The seed of {recipe['id']}"))
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
        if _is_nowhere(name):
            raise RecordingError(
                f"It was made by {name}, which no other program can import. {_NAME_IT}"
            )
        with reading(name, "cannot be made again"):
            try:
                return constructor(name, **arguments)()
            except TypeError as error:
                if are_known:
                    raise
                raise RecordingError(
                    f"{name} cannot be made again, as the recording does not know with "
                    f"which arguments: {error}. {_NAME_IT}"
                ) from error

    def _batch(self, recipe: dict[str, Any]) -> Any:
        recipes = [one for one in recipe["environments"] for _ in range(one["count"])]
        if recipe["class"] == _BATCH:
            batch = registry.load(_BATCH, _BATCH)
            specs = (recipe["arguments"] or {}).get("specs", "equal")
            envs = [self.make(one) for one in recipes]
            return batch(envs, multithreading=False, specs=specs)
        if recipe["class"] not in (_LOCKSTEP, _ASYNC):
            raise RecordingError(
                f"It was a {recipe['class']}, which is made of other environments in a "
                "way that is not known. Name what makes it with --env."
            )
        arguments = self._values(recipe["arguments"] or {}, recipe["id"])
        # Others, such as worker_setup, may import and call anything.
        for name in arguments.keys() - {"autoreset", "specs"}:
            raise RecordingError(
                f"{recipe['id']} was given {name!r}, which recordings don't note for a "
                f"pool. {_NAME_IT}"
            )
        # In lockstep and inline, it gives the same results without processes.
        pool = registry.load("pool", _LOCKSTEP)
        return pool(
            [functools.partial(self.make, one) for one in recipes],
            backend="inline",
            **arguments,
        )

    def _wrapped(self, env: Any, layer: dict[str, Any]) -> Any:
        name = layer["class"]
        if name in _LEFT_OUT:
            return env
        if _is_nowhere(name):
            raise RecordingError(
                f"It was wrapped in {name}, which no other program can import. "
                f"{_NAME_IT}"
            )
        arguments = self._values(layer["arguments"], name)
        if name == _REAL_TIME and arguments.get("host") != "virtual":
            raise RecordingError(
                "It ran in real time, which cannot be repeated. Recordings of "
                "host='virtual' can be checked."
            )
        with reading(name, "cannot be made again"):
            wrapper = registry.load(name, name)
            known = list(inspect.signature(wrapper).parameters)[1:]
            unknown = [
                parameter
                for parameter in known
                if parameter not in arguments and parameter != "handle_auto_reset"
            ]
            if unknown:
                self.assumed.append(
                    f"Of the arguments of {name}, {', '.join(unknown)} are not known; "
                    "none were given."
                )
            made = wrapper(
                env, **{key: arguments[key] for key in arguments if key in known}
            )
            if not hasattr(made, "time_step_spec"):
                raise ConstructorError.no_environment(name, made)
            return made

    def _values(self, arguments: dict[str, Any], owner: str) -> dict[str, Any]:
        def read(tag: str, data: Any) -> Any:
            if tag == "$name":
                return registry.load(data, data)
            if tag == "$constructor":
                made = self._values(data["arguments"] or {}, data["id"])
                return constructor(data["id"], **made)
            if tag == "$partial":
                function, args, kwargs = (from_plain(part, read) for part in data)
                return functools.partial(function, *args, **kwargs)
            raise RecordingError(
                f"{owner} was given {data}, which the recording does not hold. "
                f"{_NAME_IT}"
            )

        return {
            key: _read(item, f"The argument {key!r} of {owner}", read)
            for key, item in arguments.items()
        }


def _read(data: Any, what: str, other: Any = None) -> Any:
    with reading(what):
        return from_plain(data, other)


class Difference(NamedTuple):
    """Describes the first difference between a recording and an environment.

    Attributes:
        row: The row of the batch; `None` for a single environment.
        episode: The number of the episode.
        step: The number of the time step in it; 0 for the `FIRST`.
        place: The path in the time step.
        recorded: The recorded value.
        now: The value that the environment returns now.
    """

    row: int | None
    episode: int
    step: int
    place: str
    recorded: str
    now: str


class ReplayOutcome(NamedTuple):
    """Holds the result of a check.

    Attributes:
        episodes: How many episodes were compared to their end.
        time_steps: How many time steps were compared.
        difference: The first difference; `None` if there is none.
        unchecked: Why some of it could not be compared; `None` if all was compared.
    """

    episodes: int
    time_steps: int
    difference: Difference | None = None
    unchecked: str | None = None


def check(
    recording: Recording,
    env: Any,
    watch: Callable[[Mapping[int, Place]], bool] | None = None,
) -> ReplayOutcome:
    """Plays a recording on an environment, and compares every time step.

    Args:
        recording: The recording.
        env: The environment, made and seeded as originally.
        watch: Called after each call that gave the same as recorded, with the time step
            of each row that moved. Returns whether to go on.
    """
    size = env.batch_size if env.batched else None
    if size != recording.batch_size:
        raise RecordingError(
            f"The recording is of batch_size {recording.batch_size}, and the "
            f"environment has {size}."
        )
    layout = recording.layout
    for name, ours, theirs in (
        ("time_step_spec()", layout.time_step.template, env.time_step_spec()),
        ("action_spec()", layout.action.template, env.action_spec()),
    ):
        unequal = _unequal_specs(ours, theirs)
        if unequal is not None:
            path, recorded, now = unequal
            place = nest.join(name, path)
            return ReplayOutcome(0, 0, Difference(None, 0, 0, place, recorded, now))
    return _Comparison(recording, env).outcome(watch or (lambda _: True))


def _unequal_specs(ours: Any, theirs: Any) -> tuple[str, str, str] | None:
    """Returns the first path where arrays do not fit, and both specs there."""
    recorded, now = nest.Structure(ours), nest.Structure(theirs)
    if recorded.paths != now.paths:
        return "", nest.outline(ours), nest.outline(theirs)
    for path, one, other in zip(
        recorded.paths, recorded.leaves, now.leaves, strict=True
    ):
        if (one.shape, one.dtype) != (other.shape, other.dtype):
            return path, repr(one), repr(other)
    return None


class Place(NamedTuple):
    """Identifies a time step in a file."""

    episode: Episode
    step: int

    @property
    def call(self) -> int:
        """The number of the call that returned it."""
        return int(self.episode.calls[self.step])

    @property
    def step_type(self) -> int:
        """The type of the time step."""
        return int(self.episode.step_types[self.step])

    @property
    def is_whole(self) -> bool:
        """Whether the whole time step is known, not only its action."""
        return self.episode.kind == EPISODE


class _Row:
    """Iterates over the time steps of one row, in the order of their calls.

    Attributes:
        here: The next time step; `None` after the last.
        expected: The number of the episode after those seen so far.
        missing: The number of an episode that no file has; `None` if there is none.
        has_ended: Whether the previous time step was a `LAST`.
    """

    def __init__(self, recording: Recording, row: int) -> None:
        self._recording = recording
        self._entries = iter(entry for entry in recording.entries if entry.row == row)
        self.here: Place | None = None
        self.expected = 0
        self.missing: int | None = None
        self.has_ended = False
        self._open_next()

    def advance(self, place: Place) -> None:
        """Moves on to the next time step."""
        self.has_ended = place.step_type == _LAST
        if place.step + 1 < len(place.episode):
            self.here = place._replace(step=place.step + 1)
        else:
            self._open_next()

    def _open_next(self) -> None:
        self.here = None
        entry = next(self._entries, None)
        if entry is not None:
            if entry.number != self.expected:
                self.missing = self.expected
            self.here = Place(self._recording.load(entry), 0)
            self.expected = self.here.episode.last_number + 1


class _Comparison:
    """Repeats the calls of a recording, and compares their results."""

    def __init__(self, recording: Recording, env: Any) -> None:
        self._layout, self._env = recording.layout, env
        self._batched = recording.batch_size is not None
        rows = recording.batch_size or 1
        self._rows = [_Row(recording, row) for row in range(rows)]
        events = [one for one in recording.events if one["event"] in _CALLS]
        self._events = collections.deque(events)
        # How many episodes each row has begun; the last line, written by close(), says
        # it.
        last = recording.events[-1] if recording.events else {}
        self._begun: dict[int, int] = dict(enumerate(last.get("episodes", [])))
        self._episodes = self._time_steps = 0
        self._actions = [
            np.zeros((rows, *spec.shape), spec.dtype)
            for spec in self._layout.action.leaves
        ]

    def outcome(self, watch: Callable[[Mapping[int, Place]], bool]) -> ReplayOutcome:
        """Compares until a difference, an obstacle, or the end."""
        difference = why = None
        goes_on = True
        while goes_on and difference is None and why is None:
            places = {
                index: row.here
                for index, row in enumerate(self._rows)
                if row.here is not None
            }
            call = min((place.call for place in places.values()), default=None)
            why = self._obstacle(call)
            if call is None:
                break
            if why is None:
                moving = {
                    row: place for row, place in places.items() if place.call == call
                }
                difference = self._compare(moving, self._move(moving, call))
                goes_on = difference is None and watch(moving)
        return ReplayOutcome(self._episodes, self._time_steps, difference, why)

    def _obstacle(self, call: int | None) -> str | None:
        """Returns why a call, or the end, cannot be compared; `None` if it can."""
        past = [one for one in self._events if call is not None and one["call"] <= call]
        replaced = [one["row"] for one in past if one["event"] == "replaced"]
        if replaced:
            return (
                f"Then the environment of row {replaced[0]} was lost and replaced by a "
                "new one: what follows cannot be compared."
            )
        if any(one["event"] == "set_state" for one in past):
            return (
                "Then a state was set that the recording does not hold: what follows "
                "cannot be compared."
            )
        for index, row in enumerate(self._rows):
            missing = row.missing
            if missing is None and row.here is None:
                # At the end, a recording that was not closed has everything that is
                # known.
                default = row.expected if call is None else None
                is_all = self._begun.get(index, default) == row.expected
                missing = None if is_all else row.expected
            if missing is not None:
                of = f" of row {index}" if self._batched else ""
                return (
                    f"After that, nothing is known about episode {missing}{of}, "
                    "and what follows depends on it."
                )
        return None

    def _move(self, moving: dict[int, Place], call: int) -> TimeStep:
        """Makes a call, with the seeds and options before it."""
        has_options = False
        while self._events and self._events[0]["call"] <= call:
            event = self._events.popleft()
            if event["event"] == "options":
                rows = event["rows"]
                mask = None if rows is None else np.array(rows)
                hand_options(self._env, from_plain(event["options"]), mask)
                has_options = True
            elif event["event"] == "seed":
                self._env.seed(from_plain(event["seed"]))
            else:
                self._env._envkit.seed_rows(self._env, event["rows"])
        try:
            return self._call(moving)
        finally:
            if has_options:
                hand_options(self._env, None)

    def _call(self, moving: dict[int, Place]) -> TimeStep:
        env = self._env
        firsts, moved = np.zeros((2, len(self._rows)), bool)
        for row, place in moving.items():
            moved[row], firsts[row] = True, place.step_type == _FIRST
        if not self._batched:
            if firsts[0]:
                return env.reset()  # type: ignore[no-any-return]
            episode, step = moving[0]
            return env.step(episode.action(step))  # type: ignore[no-any-return]
        if (firsts == moved).all():
            return env.reset() if moved.all() else env.reset(moved)  # type: ignore[no-any-return]
        actions = self._batch_of_actions(moving)
        ended = np.array([row.has_ended for row in self._rows])
        if moved.all() and not (firsts & ~ended).any():
            return env.step(actions)  # type: ignore[no-any-return]
        return env.step_rows(actions, moved & ~firsts, firsts)  # type: ignore[no-any-return]

    def _batch_of_actions(self, moving: dict[int, Place]) -> Any:
        """Returns a batch of actions; those of rows that do not move are not used."""
        flat = {
            row: self._layout.action.flatten(episode.action(step))
            for row, (episode, step) in moving.items()
        }
        self._actions = [
            np.stack(
                [
                    flat[row][leaf] if row in flat else before[row, ...]
                    for row in range(len(self._rows))
                ]
            )
            for leaf, before in enumerate(self._actions)
        ]
        return self._layout.action.unflatten(self._actions)

    def _compare(self, moving: dict[int, Place], now: TimeStep) -> Difference | None:
        """Returns the first difference in the rows that have moved."""
        for row, place in moving.items():
            unequal = self._unequal(place, row, now)
            if unequal is not None:
                episode = place.episode.number
                of = row if self._batched else None
                return Difference(of, episode, place.step, *unequal)
            is_over = place.step == len(place.episode) - 1
            self._time_steps += place.is_whole
            self._episodes += place.is_whole and is_over
            self._rows[row].advance(place)
        return None

    def _unequal(
        self, place: Place, row: int, now: TimeStep
    ) -> tuple[str, str, str] | None:
        """Returns the first path where two time steps differ, and both values."""
        structure = self._layout.time_step
        try:
            leaves = structure.flatten(now)
        except SpecError as error:
            return "its structure", "that of its spec", str(error)
        recorded = {"step_type": place.episode.step_types[place.step]}
        if place.is_whole:
            flat = structure.flatten(place.episode.time_step(place.step))
            recorded = dict(zip(self._layout.steps, flat, strict=True))
        for name, leaf in zip(self._layout.steps, leaves, strict=True):
            if name in recorded:
                value = np.asarray(leaf)[row, ...] if self._batched else leaf
                unequal = _unequal(np.asarray(recorded[name]), np.asarray(value))
                if unequal is not None:
                    where, ours, theirs = unequal
                    return f"{name}{where}", ours, theirs
        return None


def _unequal(ours: Array, theirs: Array) -> tuple[str, str, str] | None:
    """Returns the first index where two arrays differ in any bit, and both values."""
    if (ours.shape, ours.dtype) != (theirs.shape, theirs.dtype):
        recorded, now = (
            f"array of shape {array.shape}, dtype {array.dtype}"
            for array in (ours, theirs)
        )
        return "", recorded, now
    if ours.dtype.hasobject:
        texts = [_as_text(array) for array in (ours, theirs)]
        return None if texts[0] == texts[1] else ("", texts[0], texts[1])
    if ours.tobytes() == theirs.tobytes():
        return None
    width = ours.dtype.itemsize
    bits = [
        np.frombuffer(array.tobytes(), np.uint8).reshape(-1, width)
        for array in (ours, theirs)
    ]
    first = int((bits[0] != bits[1]).any(1).argmax())
    index = np.unravel_index(first, ours.shape)
    place = f"[{', '.join(str(int(part)) for part in index)}]" if index else ""
    return place, _exact(ours[index]), _exact(theirs[index])


def _exact(value: Any) -> str:
    text = repr(value.item())
    # There are several kinds of NaN, which print alike.
    return f"{text} (bytes {value.tobytes().hex()})" if text == "nan" else text


def _as_text(array: Array) -> str:
    try:
        return dumped(to_plain(array))
    except PlainDataError:
        return repr(array.tolist())
