"""`AdaptedEnvironment`: the environment around an author's object.

```
start ── reset ── step … step ── reset ── … ── close
  │        └ seed, if one is pending
  └ on first use, in the process that uses it
```
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
import sys
import types
import weakref
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from envkit._shared.arguments import as_discount
from envkit.adapters.adapter.inference import Inferred, explained, infer
from envkit.adapters.adapter.legality import (
    LegalActions,
    action_converter,
    names_of,
    numbered,
)
from envkit.adapters.adapter.returned import reset_reader, step_reader
from envkit.adapters.foreign import ForeignEnvironment, ForeignInternals, number_of
from envkit.adapters.reset_arguments import arguments_of_reset
from envkit.adapters.state import (
    Snapshot,
    offer_of,
    restore_snapshot,
    take_snapshot,
)
from envkit.adapters.values import (
    Converter,
    Leaf,
    array_leaf,
    bounded_leaf,
    compiled,
    few_numbers,
    map_specs,
    within_bounds,
)
from envkit.errors import SpecError
from envkit.extend import Result, copied_arrays, describe
from envkit.specs.arrays import ArraySpec, BoundedArraySpec, is_discrete
from envkit.specs.environment_spec import checked_spec
from envkit.specs.sampling import sample_spec_nest
from envkit.specs.special import ObjectSpec
from envkit.time_step import DISCOUNT_SPEC, REWARD_SPEC, TimeStep
from envkit.types import NestedArray, NestedSpec, Seed

__all__ = ["AdaptedEnvironment", "AdapterState", "adapted_class", "start_again"]

# Environments by the id of their author's object, which has no attribute for it.
_ENVIRONMENTS: weakref.WeakValueDictionary[int, AdaptedEnvironment] = (
    weakref.WeakValueDictionary()
)


class AdapterState(NamedTuple):
    """Holds the state of an adapter at one moment.

    Attributes:
        kind: The name of its class.
        attributes: The author's content: a snapshot, or the result of `get_state`.
        offered: Whether the library's environment saved its state with its own methods.
        beside: The environment's own content.
    """

    kind: str
    attributes: Any
    offered: bool
    beside: Any


class _Converted(NamedTuple):
    """Marks an observation that fits its specs already."""

    value: NestedArray


@dataclasses.dataclass(frozen=True, slots=True)
class _Plan:
    """Holds an adapter's specs, and the converters between them and the author.

    Attributes:
        observation_spec: The specs of an observation, including the mask if it has one.
        inferred: Whether the specs were inferred from observations.
        read_observation: Converts the author's observations.
        copied: Copies a converted observation.
        kept: Returns the part of an observation to keep for an end that has none;
            `None` for nothing.
        read_reward: Converts rewards.
        read_discount: Converts discounts.
        read_step: Reads the result of `step`.
        to_action: Converts an action for the author's `step`.
        legal: Makes masks of legal actions, if the author reports them.
    """

    observation_spec: NestedSpec
    inferred: bool
    read_observation: Leaf
    copied: Leaf
    kept: Leaf
    read_reward: Leaf
    read_discount: Leaf
    read_step: Callable[[Any], Any]
    to_action: Leaf
    legal: LegalActions | None


class AdaptedEnvironment(ForeignEnvironment):
    """Presents an author's object as an environment; calling an `Adapter` makes one."""

    # It checks everything itself, unless `checked` is false.
    _envkit = ForeignInternals(first_look=False)

    def __init__(self, author: Any, arguments: tuple[Any, dict[str, Any]]) -> None:
        """Takes an author's object, and the arguments it was made with."""
        super().__init__(handle_auto_reset=True)
        self._foreign = self._author = author
        self._name = type(author).__name__
        self._arguments = arguments
        taken = inspect.signature(author.reset).parameters
        self._known_to_reset = {n: None for n in ("seed", "options") if n in taken}
        self._read_reset: Callable[[Any], Result] | None = None
        self._started = False
        self._plan: _Plan | None = None
        # The result of a reset that came before anyone asked for a time step.
        self._unseen: Result | None = None
        # A copy of the last observation, for ends without one: the caller owns returned
        # arrays. In a list, because setting attributes is slow.
        self._last_seen: list[NestedArray] = [None]
        # The author's method whose result is being converted.
        self._call = "step"
        _ENVIRONMENTS[id(author)] = self

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles the adapter's arguments and, once started, its state."""
        state = self.get_state() if self._started else None
        return _made_again, (type(self._author), *self._arguments, state)

    def __setattr__(self, name: str, value: Any) -> None:
        # Attributes that are read from the author's object are also written there.
        if name[0] == "_" or hasattr(type(self), name):
            object.__setattr__(self, name, value)
        else:
            setattr(self._author, name, value)

    def set_wrapper_attr(self, name: str, value: Any) -> None:
        """Sets an attribute of the author's object, for outer wrappers and pools."""
        setattr(self, name, value)

    @property
    def author(self) -> Any:
        """The author's object."""
        return self._author

    @property
    def one_per_process(self) -> bool:
        """True if a process can hold only one such environment at a time."""
        return bool(self._author.one_per_process)

    @property
    def action_names(self) -> tuple[str, ...]:
        """The names of the menu's actions, in order."""
        count = self._count_actions()  # may start the library, which knows the menu
        return names_of(self._author.actions, count)

    # The library's environment, from start to close.

    def start(self) -> Any:  # an author's `start` returns an environment
        """Starts the library's environment unless it is already running."""
        if self._started:
            return
        self._check_open("start")
        instance = self._author.start()
        if instance is not None:
            self._author.env_instance = instance
        self._started = True

    def restart(self) -> TimeStep:
        """Closes the library's environment and begins an episode in a new one."""
        self._close()
        self._closed = False
        return self.reset()

    def _close(self) -> None:
        if not self._started:
            return
        self._started, self._unseen = False, None
        try:
            self._author.close()
        finally:
            self._author.env_instance = None

    def seed(self, seed: Seed) -> None:
        """Seeds the library's environment at the next reset."""
        if not self._has("seed") and not self._reset_has("seed"):
            raise NotImplementedError(
                f"{self._name} cannot be seeded: write seed(seed), which is called "
                "before reset(), or let reset() take an argument seed."
            )
        super().seed(seed)
        self._unseen = None

    def _shown_info(self) -> dict[str, Any]:
        info: dict[str, Any] = copied_arrays(dict(self._info))
        return info

    def info_spec(self) -> dict[str, Any]:
        """Returns the spec of the mask, if the author has `legal_actions`."""
        plan = self._planned()
        return {} if plan.legal is None else {"legal_actions": plan.legal.spec}

    def _draw(self, mode: str) -> Any:
        render = getattr(self._author, "render", None)
        if render is None:
            raise NotImplementedError(
                f"{self._name} cannot render: write render(mode), which returns a "
                "picture."
            )
        self.start()
        if inspect.signature(render).parameters:
            return render(mode)
        if mode != "rgb_array":
            raise ValueError(f"{self._name} renders 'rgb_array' only, not {mode!r}.")
        return render()

    def _reset_has(self, name: str) -> bool:
        """Returns True if the author's `reset` has an argument of this name."""
        return name in self._known_to_reset

    def _has(self, verb: str) -> bool:
        """Returns True if the author has written an optional method."""
        return callable(getattr(self._author, verb, None))

    # Episodes.

    def _accepts_options(self) -> bool:
        return self._reset_has("options")

    def _begin(self, seed: int | None, options: Any) -> tuple[Any, Any]:
        plan = self._planned()
        read = self._unseen
        if read is not None:
            self._unseen = None
        # In real time that result is outdated; with options, another reset is needed.
        if read is None or self._author.realtime or options is not None:
            read = self._ask_to_begin(options)
        if plan.legal is not None:
            self._call = "reset"
            try:
                read = self._masked(plan, read)
            finally:
                self._call = "step"
        return read.observation, read.info

    def _ask_to_begin(self, options: Any = None) -> Result:
        """Calls the author's `reset`, with any pending seed."""
        self._check_open("reset")
        self.start()
        seed, author = self._next_seed, self._author
        # Arguments without defaults are passed even if they are `None`.
        arguments = arguments_of_reset(self._known_to_reset, seed, options)
        if seed is not None and "seed" not in arguments:
            author.seed(seed)
        result = author.reset(**arguments)
        if seed is not None:
            self._next_seed = None
        if self._read_reset is None:
            self._read_reset = reset_reader(self._name, author.reset_returns)
        return self._read_reset(result)

    def _move(self, action: Any) -> Any:
        # Hot: called once per step.
        if not self._started:
            self._check_open("step")
        plan = self._plan or self._planned()
        # Kept again once this step's is converted, unless a pool's row is written.
        seen, self._last_seen[0] = self._last_seen[0], None
        result = plan.read_step(self._author.step(action))
        if plan.legal is None and result[0] is not None:
            return result
        read = Result(*result)
        if read.observation is None and (read.terminated or read.truncated):
            read = read._replace(observation=self._repeated(plan, seen))
        return read if plan.legal is None else self._masked(plan, read)

    def _first(self, observation: Any) -> TimeStep:
        self._call = "reset"
        try:
            return super()._first(observation)
        finally:
            self._call = "step"

    def _to_observation(self, observation: Any) -> NestedArray:
        # Hot: called once per step.
        if observation.__class__ is _Converted:
            return observation.value
        plan = self._plan or self._planned()
        try:
            converted = plan.read_observation(observation)
        except SpecError as error:
            if not plan.inferred:
                raise
            raise explained(error, self._name, self._call, observation) from None
        self._last_seen[0] = plan.kept(converted)
        return converted

    def _to_reward(self, reward: Any) -> NestedArray:
        plan = self._planned()
        number = number_of(reward) if self.reward_spec() is REWARD_SPEC else None
        if number is not None:
            return np.array(number, np.float32)
        return plan.read_reward(reward)

    def _to_discount(self, discount: Any) -> NestedArray:
        return self._planned().read_discount(discount)

    def _repeated(self, plan: _Plan, seen: NestedArray) -> _Converted:
        """Repeats the last observation: some libraries return none at the end."""
        if seen is not None:
            return _Converted(seen)
        observation = self.current_time_step().observation
        if self._author.observe_legal_actions:
            observation = observation["observation"]
        return _Converted(plan.copied(observation))

    def _masked(self, plan: _Plan, read: Result) -> Result:
        """Adds the mask of legal actions to the info and the observation."""
        assert plan.legal is not None  # otherwise there is no mask
        observation = self._to_observation(read.observation)
        if read.terminated or read.truncated:
            # After the end, every action does the same: it begins an episode.
            mask = plan.legal.all()
        else:
            mask = plan.legal(self._author.legal_actions(read.observation))
        if self._author.observe_legal_actions:
            observation = {"observation": observation, "legal_actions": mask.copy()}
        info = {**(read.info or {}), "legal_actions": mask}
        return read._replace(observation=_Converted(observation), info=info)

    def _choices(self) -> Mapping[int, Any] | None:
        spec = self._planned() and self.action_spec()
        if not isinstance(spec, ArraySpec) or spec.dtype.kind not in "biuf":
            return None
        if spec.shape != ():
            return {}
        is_number = isinstance(spec, BoundedArraySpec) and spec.dtype.kind in "iu"
        return few_numbers(spec, int) or None if is_number else None  # type: ignore[arg-type]  # it is bounded

    # Specs: declared, counted or inferred.

    def observation_spec(self) -> NestedSpec:
        """Returns the observation's specs, which may require an observation first."""
        return self._planned().observation_spec

    def action_spec(self) -> NestedSpec:
        """Returns the specs of an action."""
        if self._action_spec is None:
            self._action_spec = self._declared("action_spec")
        if self._action_spec is None:
            count = self._count_actions()
            self._action_spec = numbered(self._name, None, count)
        return self._action_spec

    def reward_spec(self) -> NestedSpec:
        """Returns the specs of the reward."""
        return self._declared("reward_spec", REWARD_SPEC)

    def discount_spec(self) -> NestedSpec:
        """Returns the specs of the discount."""
        return self._declared("discount_spec", DISCOUNT_SPEC)

    def _declared(self, name: str, default: NestedSpec = None) -> NestedSpec:
        """Returns declared specs, which may only be known after the start."""
        try:
            declared = self._asked(name)
        # An author's method may raise anything while there is no environment.
        except Exception:
            if self._started:
                raise
            self.start()
            declared = self._asked(name)
        if declared is None:
            return default
        return checked_spec(declared, f"{self._name}.{name} is")

    def _asked(self, name: str) -> Any:
        value = getattr(self._author, name)
        return value() if callable(value) else value

    def _count_actions(self) -> int:
        """Returns the number of actions, if it can be determined."""
        author, name = self._author, self._name
        spec = numbered(name, author.actions, author.num_actions)
        declared = None if spec else self._declared("action_spec")
        if _is_number_from_0(declared):
            spec = declared
        if spec is None and not self._started:
            self.start()  # which may set num_actions
            spec = numbered(name, author.actions, author.num_actions)
        if spec is None and declared is not None:
            raise TypeError(
                f"{name} has actions that cannot be counted, because they are not a "
                f"single integer from 0: {declared!r:.200}. Declare their number: "
                "num_actions = 4."
            )
        if spec is None:
            raise TypeError(
                f"{name} does not declare its actions. Declare a list of them, actions "
                "= [...], or their number, num_actions = 4, or the specs of an "
                "action, action_spec = BoundedArraySpec(...)."
            )
        return int(spec.maximum) + 1

    def _planned(self) -> _Plan:
        if self._plan is None:
            plan = self._make_plan()
            self._plan, self._to_action = plan, plan.to_action
            self._prepare(self._author.discount)
            reward_spec, seen = self.reward_spec(), plan.observation_spec
            if type(reward_spec) is not ArraySpec:
                self._numbers = frozenset()
            if self._author.checked and isinstance(seen, ArraySpec):
                self._fits = within_bounds(seen)
        return self._plan

    def _make_plan(self) -> _Plan:
        """Makes all specs; if they are inferred, this begins an episode."""
        author, name = self._author, self._name
        to_action = action_converter(self.action_spec(), name, checked=author.checked)
        legal = self._legality()
        spec = self._declared("observation_spec")
        inferred = spec is None
        if inferred:
            spec, leaves = self._inferred(legal)
        else:
            leaves = self._leaves(spec)
        read_observation: Leaf = self._reader("observation", spec, leaves)
        if author.fresh_arrays:
            read_observation = _same
        copied = compiled(map_specs(lambda leaf: np.array, spec))
        if legal is not None and author.observe_legal_actions:
            spec = {"observation": spec, "legal_actions": legal.spec}
        reward_spec, discount_spec = self.reward_spec(), self.discount_spec()
        as_discount(author.discount)  # raises if invalid
        return _Plan(
            observation_spec=spec,
            inferred=inferred,
            read_observation=read_observation,
            copied=copied,
            kept=_nothing if author.fresh_arrays else copied,
            read_reward=self._reader("reward", reward_spec, self._leaves(reward_spec)),
            read_discount=self._reader(
                "discount", discount_spec, self._leaves(discount_spec)
            ),
            read_step=step_reader(name, author.step_returns),
            to_action=to_action,
            legal=legal,
        )

    def _leaves(self, spec: NestedSpec) -> Any:
        """Returns the converters for declared specs, leaf by leaf."""

        def leaf_of(leaf: ArraySpec) -> Leaf:
            if isinstance(leaf, ObjectSpec):
                return _object_leaf(leaf)
            return bounded_leaf(leaf) if self._author.checked else array_leaf(leaf)

        return map_specs(leaf_of, spec)

    def _reader(self, part: str, spec: NestedSpec, leaves: Any) -> Converter:
        """Returns a converter for the author's results."""
        article = "an" if part == "observation" else "a"
        subject = f"{self._name} returned {article} {part} that"
        return Converter(spec, leaves, subject=subject, root=part)

    def _legality(self) -> LegalActions | None:
        author = self._author
        if author.legal_actions is not None:
            return LegalActions(self._name, author.actions, self._count_actions())
        if author.observe_legal_actions:
            raise TypeError(
                f"{self._name}.observe_legal_actions is set, but there is no method "
                "legal_actions(observation)."
            )
        return None

    def _inferred(self, legal: LegalActions | None) -> Inferred:
        author = self._author
        return infer(
            self._observations(legal),
            name=self._name,
            floats=author.floats,
            text_length=author.text_length,
            max_lengths=author.max_lengths,
        )

    def _observations(self, legal: LegalActions | None) -> list[Any]:
        """Returns observations to infer specs from: the first, or a trial run's."""
        steps = self._author.probe_steps
        if steps and not self._author.can_be_made_again:
            # There is only this environment, so leave its first episode and its seed
            # to the program.
            seed = self._next_seed
            observations = self._probe(steps, legal)
            self._next_seed = seed
            return observations
        if self._unseen is None:
            self._unseen = self._ask_to_begin()
        if not steps:
            return [self._unseen.observation]
        args, kwargs = self._arguments
        with type(self._author)(*args, **kwargs) as other:
            return [self._unseen.observation, *other._probe(steps, legal)]

    def _probe(self, steps: int, legal: LegalActions | None) -> list[Any]:
        """Plays random legal actions, and returns the observations."""
        author, rng = self._author, np.random.default_rng(0)
        read_step = step_reader(self._name, author.step_returns)
        spec = self.action_spec()
        to_action = action_converter(spec, self._name, checked=False)
        observations = [self._ask_to_begin().observation]
        for _ in range(steps):
            if legal is not None:
                places = np.flatnonzero(legal(author.legal_actions(observations[-1])))
                action = rng.choice(places) if len(places) else 0
            else:
                action = sample_spec_nest(spec, rng)
            read = Result(*read_step(author.step(to_action(action))))
            if read.observation is not None:
                observations.append(read.observation)
            if read.terminated or read.truncated:
                observations.append(self._ask_to_begin().observation)
        return observations

    # The state: the author's own, or a copy of everything in the author's object.

    def _get_state(self) -> AdapterState:
        author = self._author
        self._check_open("get_state")
        self.start()
        if self._has("get_state"):
            attributes, offered = author.get_state(), False
        else:
            attributes, offered = self._saved()
        beside = self._info, self._next_seed, self._unseen
        return AdapterState(type(author).__qualname__, attributes, offered, beside)

    def _saved(self) -> tuple[Snapshot, bool]:
        """Saves the author's attributes, including the library's environment.

        Functions and classes given as arguments of the adapter are not part of its
        state.

        Returns:
            The snapshot, and whether the library's environment saved its state itself.
        """
        name, kept = self._name, self._kept()
        # Not the author's object: its methods do not offer to save a library's state.
        holder = types.SimpleNamespace(**vars(self._author))
        try:
            return take_snapshot(holder, name, layers=[holder], kept=kept), False
        except NotImplementedError as error:
            cause = error.__cause__
            instance = self._author.env_instance
            if hasattr(instance, "__dict__") and offer_of(instance) is not None:
                layers = [holder, instance]
                return take_snapshot(holder, name, layers=layers, kept=kept), True
        raise NotImplementedError(
            f"{name} cannot save its state: something that it holds does not pickle: "
            f"{cause}. If the library can save states, write get_state() and "
            "set_state(state), which call it."
        ) from cause

    def _set_state(self, state: Any) -> None:
        author = self._author
        self._check_open("set_state")
        kind = type(author).__qualname__
        if not isinstance(state, AdapterState) or state.kind != kind:
            of = state.kind if isinstance(state, AdapterState) else describe(state)
            raise ValueError(f"{kind} was given the state of another adapter: {of}.")
        self._planned()  # inferring specs later would begin another episode
        self._last_seen[0] = None
        self.start()
        if self._has("set_state"):
            author.set_state(state.attributes)
        else:
            holder = types.SimpleNamespace(**vars(author))
            layers = [holder, author.env_instance] if state.offered else [holder]
            restore_snapshot(
                holder, self._name, state.attributes, layers=layers, kept=self._kept()
            )
            vars(author).clear()
            vars(author).update(vars(holder))
        self._info, self._next_seed, self._unseen = state.beside

    def _kept(self) -> list[Any]:
        """Lists the objects that a state leaves out, in a stable order.

        They are the author's object, functions and classes given as its arguments, and
        classes that do not pickle by name, such as those of a worker's main script.
        """
        args, kwargs = self._arguments
        given = [*args, *(kwargs[name] for name in sorted(kwargs))]
        classes = {
            name: value
            for owner in type(self._author).__mro__
            for method in vars(owner).values()
            for name, value in getattr(method, "__globals__", {}).items()
            if isinstance(value, type) and not _is_found(value)
        }
        by_name = [classes[name] for name in sorted(classes)]
        return [self._author, *filter(callable, given), *by_name]


def adapted_class(
    cls: type, base: type[AdaptedEnvironment] = AdaptedEnvironment
) -> type[AdaptedEnvironment]:
    """Returns the class of environments around objects of an author's class.

    It has the name of the author's class, so messages show that name.
    """
    names = ("__module__", "__qualname__", "__doc__")
    return type(
        cls.__name__,
        (base,),
        {name: getattr(cls, name) for name in names},
    )


def start_again(author: Any) -> None:
    """Closes the library environment of an author, and starts another."""
    environment = _ENVIRONMENTS[id(author)]
    environment._close()
    environment._closed = False
    environment.start()


def _made_again(
    cls: type, args: tuple[Any, ...], kwargs: dict[str, Any], state: Any
) -> Any:
    environment = cls(*args, **kwargs)
    if state is not None:
        environment.set_state(state)
    return environment


def _same(observation: NestedArray) -> NestedArray:
    return observation


def _nothing(observation: NestedArray) -> None:
    return None


def _is_number_from_0(spec: NestedSpec) -> bool:
    return (
        isinstance(spec, BoundedArraySpec)
        and spec.shape == ()
        and is_discrete(spec)
        and int(spec.minimum) == 0
    )


def _object_leaf(spec: ObjectSpec) -> Leaf:
    def convert(value: Any) -> Any:
        if isinstance(value, np.ndarray) and value.dtype == object:
            value = value[()]
        if not spec.contains(value):
            raise SpecError
        # The library keeps changing its own object.
        return ObjectSpec.wrap(copy.deepcopy(value))

    return convert


def _is_found(kind: type) -> bool:
    """Returns True if pickle can find a class by its name."""
    found: Any = sys.modules.get(kind.__module__)
    for part in kind.__qualname__.split("."):
        found = getattr(found, part, None)
    return found is kind
