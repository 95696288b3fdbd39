"""`EnvAdapter`: support for a library that envkit has never seen, in a few lines.

An author writes what the library is asked: `start`, `step`, `reset` and, if there is
something to free, `close`. The adapter is an environment of envkit like any other.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

import numpy as np
import numpy.typing as npt

from envkit import nest
from envkit.adapters.env_adapters.adapter_state import AdapterState, restored, saved
from envkit.adapters.env_adapters.author import Author
from envkit.adapters.env_adapters.inference import explained
from envkit.adapters.env_adapters.menu import names_of
from envkit.adapters.env_adapters.plan import Plan
from envkit.adapters.env_adapters.planning import (
    action_spec_of,
    count_actions,
    make_plan,
)
from envkit.adapters.env_adapters.returned import Result
from envkit.adapters.env_adapters.two_faces import adopt
from envkit.errors import SpecError
from envkit.py_environment import PyEnvironment
from envkit.seeding import checked_seeds
from envkit.specs.validation import describe
from envkit.time_step import StepType, TimeStep
from envkit.types import Array, NestedArray, NestedSpec, Seed
from envkit.wording import listed

__all__ = ["EnvAdapter", "Result"]

Self = TypeVar("Self", bound="EnvAdapter")

_FIRST, _MID, _LAST = StepType.FIRST, StepType.MID, StepType.LAST
# What the base classes keep on an instance; everything else is the author's.
_NOT_THE_AUTHORS = {
    "_author",
    "_current_time_step",
    "_handle_auto_reset",
    "_info",
    "_known_actions",
    "_merge_structure",
    "_plan",
    "_seen",
}


class EnvAdapter(PyEnvironment):
    """Makes an environment of any library, by what it is asked in four methods.

    | an author writes       | which                                                   |
    |------------------------|---------------------------------------------------------|
    | `start()`              | makes the library's environment, and returns it         |
    | `reset()`              | begins an episode; returns an observation               |
    | `step(action)`         | returns `(observation, reward, done)`, or a `Result`    |
    | `close()`              | frees it; without this, its own `close` is called       |

    What `start` returns is `self.env_instance`. It is called when it is first needed,
    in the process that needs it. Everything else is optional:

    | optional               | which                                                   |
    |------------------------|---------------------------------------------------------|
    | `actions`              | a list of what can be done; `step` gets a place in it   |
    | `num_actions`          | how many actions there are, if nothing else is known    |
    | `action_spec`          | specs of an action, or a method that returns them       |
    | `observation_spec`     | the same of an observation; otherwise they are inferred |
    | `legal_actions(obs)`   | a mask of what is legal, or which actions are           |
    | `seed(seed)`           | called before `reset`; or a `reset` that takes `seed`   |
    | `render(mode)`         | a picture                                               |
    | `get_state()`, `set_state(state)` | all that later steps depend on               |

    Every class attribute can be given when an adapter is made, those of the author
    among them: `Game(size=5)` changes the attribute `size`, unless the author has
    written `__init__`.

    Attributes:
        env_instance: What `start` returned; `None` when there is none.
        realtime: Whether the library's own clock goes on while nobody steps.
        discount: What later rewards are worth, after a step that does not terminate
            the episode.
        floats: What float64 in observations becomes where specs are inferred:
            `np.float32`, for example.
        text_length: How long strings in observations are at most.
        max_lengths: Of lists whose length varies, how long they are at most, by their
            keys: `{"path": 9}`; or a number if the observation is such a list. They
            become dictionaries of `length` and `values`.
        probe_steps: How many random steps are made, in an environment of their own, to
            see what observations look like.
        checked: Whether bounds of specs are looked at.
        observe_legal_actions: Whether an observation is a dictionary of `observation`
            and `legal_actions`. The mask is in the info, too.
        step_returns: What the parts are of what `step` returns, if they are not told
            by their number: `"reward, observation, done"`.
        reset_returns: The same for `reset`: `"observation"` is not taken apart.

    Example:
        >>> class Counter(EnvAdapter):
        ...     actions = ["up", "down"]
        ...     goal = 3
        ...     def reset(self):
        ...         self.count = 0
        ...         return self.count
        ...     def step(self, action):
        ...         self.count += 1 if self.actions[action] == "up" else -1
        ...         return self.count, -1.0, self.count == self.goal
        >>> env = Counter(goal=2)
        >>> [int(env.step(0).step_type) for _ in range(4)]
        [0, 1, 2, 0]
        >>> env.observation_spec(), env.action_names
        (ArraySpec(shape=(), dtype=int64, name='observation'), ('up', 'down'))
    """

    env_instance: Any = None
    actions: Sequence[Any] | None = None
    num_actions: int | None = None
    realtime: bool = False
    discount: float = 1.0
    floats: npt.DTypeLike = "float64"
    text_length: int = 256
    max_lengths: int | tuple[int, Any] | Mapping[str, Any] | None = None
    probe_steps: int = 0
    checked: bool = True
    observe_legal_actions: bool = False
    step_returns: str | Sequence[str | None] | None = None
    reset_returns: str | Sequence[str | None] | None = None
    legal_actions: Callable[[Any], Any] | None = None

    _handle_auto_reset = True
    _author: Author
    _authored: ClassVar[Mapping[str, Callable[..., Any]]] = {}
    _plan: Plan | None = None
    _known_actions: NestedSpec = None
    _info: Mapping[str, Any] = {}
    # A copy of the last observation, for ends without one; returned arrays are the
    # caller's. `None` where nobody has been given any.
    _seen: NestedArray = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._authored = adopt(cls, EnvAdapter)

    def __new__(cls: type[Self], *args: Any, **kwargs: Any) -> Self:
        """Remembers how the adapter was made, and that its author is complete."""
        cls._check_author()
        adapter = super().__new__(cls)
        adapter._author = Author(adapter, (args, kwargs))
        return adapter

    def __init__(self, **settings: Any) -> None:
        """Makes an adapter; the library is asked for an environment later.

        Args:
            settings: Attributes of the class that are to be different.
        """
        super().__init__(handle_auto_reset=True)
        known = _settings(type(self))
        for name, value in settings.items():
            if name not in known:
                raise TypeError(
                    f"{type(self).__name__} has no setting {name!r}. Settings are the "
                    f"attributes of the class: {listed(sorted(known), most=30)}."
                )
            setattr(self, name, value)

    @classmethod
    def _check_author(cls) -> None:
        for name in ("reset", "step"):
            if name not in cls._authored:
                raise TypeError(
                    f"{cls.__name__} has no method {name}(). An EnvAdapter has "
                    "start(), step(action) and reset(), and close() if there is "
                    "something to free."
                )
        for name, other in (("get_state", "set_state"), ("set_state", "get_state")):
            if name in cls._authored and other not in cls._authored:
                raise TypeError(f"{cls.__name__} has {name}(), but no {other}().")

    def _refuse_overridden_template(self) -> None:
        """Does nothing: here `step` and `reset` are the author's to write."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles how the adapter was made and, once it is started, its state."""
        state = self.get_state() if self._author.started else None
        return _made_again, (type(self), *self._author.arguments, state)

    def start(self) -> Any:  # an author's returns the library's environment
        """Has the library make its environment, unless there is one."""
        self._author.start()

    def restart(self) -> TimeStep:
        """Closes the library's environment, and begins an episode in a new one."""
        author = self._author
        author.stop()
        author.closed = False
        if author.inside:  # The author asks, whose reset() comes next.
            author.start()
        return self.reset()

    def close(self) -> None:
        """Closes the library's environment; calling it again does nothing."""
        self._author.closed = True
        self._author.stop()

    def observation_spec(self) -> NestedSpec:
        """Returns the specs of an observation, which may have to be seen for that."""
        return self._planned().observation_spec

    def action_spec(self) -> NestedSpec:
        """Returns the specs of an action."""
        if self._known_actions is None:
            self._known_actions = action_spec_of(self, self._author)
        return self._known_actions

    @property
    def action_names(self) -> tuple[str, ...]:
        """What the actions of the menu are called, in their order."""
        count = count_actions(self, self._author)  # It may start what knows the menu.
        return names_of(self.actions, count)

    @property
    def can_be_made_again(self) -> bool:
        """Whether its arguments make another one, with an environment of its own."""
        return True

    def _planned(self) -> Plan:
        if self._plan is None:
            self._plan = make_plan(self, self._author)
        return self._plan

    def seed(self, seed: Seed) -> None:
        """Seeds the library's environment at the next reset."""
        author = self._author
        if not author.wrote("seed") and not author.reset_takes("seed"):
            raise NotImplementedError(
                f"{author.name} cannot be seeded: write seed(seed), which is called "
                "before reset(), or let reset() take an argument seed."
            )
        self._noted_seed = seed
        (next_seed,) = checked_seeds(seed, 1)
        if next_seed is None:
            next_seed = int(np.random.SeedSequence().generate_state(1)[0])
        author.next_seed, author.first = next_seed, None

    def get_info(self) -> dict[str, Any]:
        """Returns what the last step or reset said besides.

        With `legal_actions` it has their mask, and at the end of an episode
        `terminated` and `truncated`.
        """
        return dict(self._info)

    def info_spec(self) -> dict[str, Any]:
        """Returns the spec of the mask, if there are `legal_actions`."""
        plan = self._planned()
        return {} if plan.legal is None else {"legal_actions": plan.legal.spec}

    def render(self, mode: str = "rgb_array") -> Any:
        """Returns what the author's `render` does."""
        author = self._author
        if not author.wrote("render"):
            return super().render(mode)
        author.check_open("render")
        author.start()
        picture = author.render(mode)
        return np.array(picture) if mode == "rgb_array" else picture

    def _takes_options(self, rows: Array | None) -> bool:
        return self._author.reset_takes("options")

    def _reset(self, options: dict[str, Any] | None = None) -> TimeStep:
        plan = self._planned()
        read = self._author.take_first(options)
        self._info = read.info
        observation = self._observed(plan, read.observation, "reset")
        self._seen = plan.copied(observation)
        if plan.legal is not None:
            mask = plan.legal(self._author.legal_actions(read.observation))
            observation = self._with_mask(observation, mask)
        reward = nest.map_structure(np.array, plan.nothing)
        return TimeStep(_FIRST, reward, plan.one, observation)

    def _step(self, action: NestedArray) -> TimeStep:
        # Hot: called once per step.
        author = self._author
        if not author.started:
            author.check_open("step")
        plan = self._plan or self._planned()
        read = plan.read_step(author.ask("step", plan.to_action(action)))
        ended = read.terminated or read.truncated
        self._info = read.info
        if ended:
            # Both can be true, and a discount tells only one.
            flags = {"terminated": read.terminated, "truncated": read.truncated}
            self._info = {**flags, **read.info}
        if read.observation is None and ended:
            observation = self._last_observation(plan)
        else:
            observation = self._observed(plan, read.observation, "step")
            if not ended:
                self._seen = plan.copied(observation)
        if plan.legal is not None:
            # After the end every action does the same: it begins an episode.
            mask = (
                plan.legal.all()
                if ended
                else plan.legal(author.legal_actions(read.observation))
            )
            observation = self._with_mask(observation, mask)
        return TimeStep(
            _LAST if ended else _MID,
            plan.reward_of(read),
            plan.discount_of(read),
            observation,
        )

    def _observed(self, plan: Plan, observation: Any, call: str) -> NestedArray:
        try:
            return plan.read_observation(observation)
        except SpecError as error:
            if not plan.inferred:
                raise
            raise explained(error, self._author.name, call, observation) from None

    def _last_observation(self, plan: Plan) -> NestedArray:
        """Repeats the last observation: some libraries have none at the end."""
        if self._seen is not None:
            return self._seen
        observation = self.current_time_step().observation
        if self.observe_legal_actions:
            observation = observation["observation"]
        return plan.copied(observation)

    def _with_mask(self, observation: Any, mask: Array) -> NestedArray:
        self._info = {**self._info, "legal_actions": mask}
        if not self.observe_legal_actions:
            return observation
        return {"observation": observation, "legal_actions": mask.copy()}

    def _get_state(self) -> AdapterState:
        author = self._author
        author.check_open("get_state")
        author.start()
        if author.wrote("get_state"):
            attributes, offered = author.ask("get_state"), False
        else:
            attributes, offered = saved(author, self._attributes())
        beside = self._info, author.next_seed, author.first
        return AdapterState(type(self).__qualname__, attributes, offered, beside)

    def _set_state(self, state: Any) -> None:
        author = self._author
        author.check_open("set_state")
        kind = type(self).__qualname__
        if not isinstance(state, AdapterState) or state.kind != kind:
            of = state.kind if isinstance(state, AdapterState) else describe(state)
            raise ValueError(f"{kind} was given the state of another adapter: {of}.")
        self._planned()  # To infer specs later would begin another episode.
        self._seen = None
        author.start()
        if author.wrote("set_state"):
            author.ask("set_state", state.attributes)
        else:
            before = self._attributes()
            after = restored(author, before, state.attributes, state.offered)
            for name in before:
                delattr(self, name)
            vars(self).update(after)
        self._info, author.next_seed, author.first = state.beside

    def _attributes(self) -> dict[str, Any]:
        """Returns what the author keeps on the adapter."""
        return {
            name: value
            for name, value in vars(self).items()
            if name not in _NOT_THE_AUTHORS
        }


def _settings(cls: type) -> set[str]:
    """Names the attributes that can be given when an adapter is made."""
    owners = cls.__mro__[: cls.__mro__.index(EnvAdapter) + 1]
    return {
        name
        for owner in owners
        for name, value in vars(owner).items()
        if not name.startswith("_")
        and not inspect.isroutine(value)
        and not isinstance(value, property)
    } - {"env_instance", "legal_actions"}


def _made_again(
    cls: type[EnvAdapter], args: tuple[Any, ...], kwargs: dict[str, Any], state: Any
) -> EnvAdapter:
    adapter = cls(*args, **kwargs)
    if state is not None:
        adapter.set_state(state)
    return adapter
