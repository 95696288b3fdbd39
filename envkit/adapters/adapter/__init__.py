"""`Adapter`: supports a library that envkit does not know, in a few lines.

An author writes a class that calls the library: `start`, `reset`, `step` and, if
something must be freed, `close`. Calling the class makes an environment around an
instance of it:

```
LiftEnv(floors=3) ──> AdaptedEnvironment          envkit's: reset() returns a TimeStep
                        └── LiftEnv object        the author's: reset() returns what
                              └── env_instance    the library's          they wrote
```

So authors can choose any attribute names.

Environment code is imported when an environment is made: a module with an `Adapter` may
also have a `Scheme`, which `envkit list` reads without NumPy.
"""

from __future__ import annotations

import abc
import inspect
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from envkit.extend import lazy_names, listed

if TYPE_CHECKING:
    from envkit.adapters.adapter.adapted import AdaptedEnvironment
    from envkit.extend import Result as Result
    from envkit.types import NestedSpec

__all__ = ["Adapter", "EnvAdapter", "Result"]

T = TypeVar("T")

# The names with which Python makes an object and manages its attributes.
_REFUSED = ("__class__", "__dict__", "__getattribute__", "__new__", "__setattr__")


# The environment classes that authors chose; environments have no attribute for it.
_CHOSEN: weakref.WeakKeyDictionary[type, type[AdaptedEnvironment]] = (
    weakref.WeakKeyDictionary()
)


class _AdapterType(abc.ABCMeta):
    """The metaclass of `Adapter` and its subclasses.

    With `class Game(Adapter, environment=Played)`, environments of `Game` and its
    subclasses are instances of `Played`, a subclass of `AdaptedEnvironment`.
    """

    def __new__(
        mcs,
        name: str,
        bases: tuple[type, ...],
        namespace: dict[str, Any],
        *,
        environment: type[AdaptedEnvironment] | None = None,
        **kwargs: Any,
    ) -> Any:
        cls = super().__new__(mcs, name, bases, namespace, **kwargs)
        if environment is not None:
            _CHOSEN[cls] = environment
        return cls

    def __init__(
        cls,
        name: str,
        bases: tuple[type, ...],
        namespace: dict[str, Any],
        **kwargs: Any,
    ) -> None:
        super().__init__(name, bases, namespace)
        refused = [name for name in _REFUSED if name in namespace]
        if refused:
            raise TypeError(
                f"{name} defines {refused[0]}, which Python and envkit use to reach "
                "the rest of the class. An Adapter may define any other name."
            )

    def __call__(cls: type[T], *args: Any, **kwargs: Any) -> T:
        """Makes an environment around an instance of the class."""
        from envkit.adapters.adapter.adapted import adapted_class

        _check_author(cls)
        author = type.__call__(cls, *args, **kwargs)
        chosen = [_CHOSEN[base] for base in cls.__mro__ if base in _CHOSEN]
        kind = adapted_class(cls, *chosen[:1])
        return kind(author, (args, kwargs))  # type: ignore[return-value]  # to those who call it

    def __instancecheck__(cls, instance: Any) -> bool:
        """Returns True for an environment of the class, and for an author's object."""
        from envkit.adapters.adapter.adapted import AdaptedEnvironment

        if isinstance(instance, AdaptedEnvironment):
            instance = instance.author
        return super().__instancecheck__(instance)


if TYPE_CHECKING:
    import numpy.typing as npt

    # For type checkers, an author's class makes environments.
    _Made = AdaptedEnvironment
else:
    _Made = object


class Adapter(_Made, metaclass=_AdapterType):
    """Makes an environment of any library, given four methods.

    | an author writes       | which                                                   |
    |------------------------|---------------------------------------------------------|
    | `start()`              | makes and returns the library's environment             |
    | `reset()`              | begins an episode; returns an observation               |
    | `step(action)`         | returns `(observation, reward, done)`, or a `Result`    |
    | `close()`              | frees it; by default, calls the library's `close`       |

    The result of `start` becomes `self.env_instance`. `start` is called on first use,
    in the process that uses it. Everything else is optional:

    | optional               | which                                                   |
    |------------------------|---------------------------------------------------------|
    | `actions`              | a list of the actions; `step` gets an index in it       |
    | `num_actions`          | the number of actions, if nothing else is known         |
    | `action_spec`          | specs of an action, or a method that returns them       |
    | `observation_spec`     | specs of an observation; inferred by default            |
    | `reward_spec`, `discount_spec` | the same, unless one float32 is right           |
    | `legal_actions(obs)`   | a mask of the legal actions, or a list of them          |
    | `seed(seed)`           | called before `reset`; or `reset` may take `seed`       |
    | `render(mode)`         | a picture                                               |
    | `get_state()`, `set_state(state)` | everything that later steps depend on        |

    `step` may also return `(observation, reward, done, info)`, `(observation, reward,
    terminated, truncated)`, the same with an info, or a time step; `reset` may return
    `(observation, info)` or a time step. If the last observation of an episode
    is `None`, the previous one is repeated. At the end of an episode all actions are
    legal, because any action begins the next one.

    Without `get_state` and `set_state`, a state is a pickle of the adapter and the
    library's environment, or the result of that environment's own `clone_state` or
    `get_state`. `set_state` keeps the author's object, but may replace its
    `env_instance`. An adapter pickles as its class, its arguments and, once started,
    its state.

    All other names are free. Within the author's methods, `self.step` is the author's
    own method, not the environment's. Public attributes that the environment lacks are
    taken from the author's object. `isinstance(env, Game)` is true for an
    environment of `Game`.

    Any class attribute, including the author's, can be set when an adapter is made:
    `Game(size=5)` changes the attribute `size`, unless the author has written
    `__init__`.

    Attributes:
        env_instance: The result of `start`; `None` before it.
        realtime: Whether the library's own clock runs between steps. The observation
            that specs were inferred from is then out of date, and not used again.
        one_per_process: Whether a process can hold only one such environment at a time.
        can_be_made_again: Whether the same arguments make another environment that is
            independent of the first; not if one of them is an open connection, say.
            Otherwise `probe_steps` run in the environment itself.
        discount: The discount of steps that do not terminate the episode.
        floats: The dtype that replaces float64 in inferred observation specs, such as
            `np.float32`.
        text_length: The maximum length of strings in observations.
        max_lengths: The maximum lengths of lists whose length varies, by key or path:
            `{"path": 9}`, `{"['map']['path']": 9}`; or a number if the whole
            observation is such a list. `(9, spec)` also describes an element. These
            lists become dictionaries of `length` and `values`.
        probe_steps: The number of random steps to try, in a separate environment, to
            infer the observation specs.
        checked: Whether bounds of specs are checked.
        fresh_arrays: Whether observations, the last of an episode included, are already
            new arrays that match `observation_spec`. They are neither converted, copied
            nor checked.
        observe_legal_actions: Whether an observation is a dictionary of `observation`
            and `legal_actions`. The mask is in the info too.
        step_returns: The parts that `step` returns, if their number does not determine
            them: `"reward, observation, done"`.
        reset_returns: The parts that `reset` returns; `"observation"` means a single
            value that is not split.

    Example:
        >>> class Counter(Adapter):
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
    can_be_made_again: bool = True
    discount: float = 1.0
    floats: npt.DTypeLike = "float64"
    text_length: int = 256
    max_lengths: int | tuple[int, Any] | Mapping[str, Any] | None = None
    probe_steps: int = 0
    checked: bool = True
    fresh_arrays: bool = False
    observe_legal_actions: bool = False
    step_returns: str | Sequence[str | None] | None = None
    reset_returns: str | Sequence[str | None] | None = None
    legal_actions: Callable[[Any], Any] | None = None
    if not TYPE_CHECKING:  # type checkers see the environment's methods
        one_per_process: bool = False
        observation_spec: NestedSpec = None
        action_spec: NestedSpec = None
        reward_spec: NestedSpec = None
        discount_spec: NestedSpec = None

    def __init__(self, **settings: Any) -> None:
        """Makes an adapter; the library's environment is made later.

        Args:
            settings: Class attributes to change.
        """
        known = _settings(type(self))
        for name, value in settings.items():
            if name not in known:
                raise TypeError(
                    f"{type(self).__name__} has no setting {name!r}. Settings are the "
                    f"attributes of the class: {listed(sorted(known), most=30)}."
                )
            setattr(self, name, value)

    def start(self) -> Any:
        """Makes the library's environment, which becomes `env_instance`."""

    def close(self) -> None:
        """Closes the library's environment, if it can be closed."""
        close = getattr(self.env_instance, "close", None)
        if callable(close):
            close()

    def restart(self) -> Any:
        """Begins an episode in a new library environment.

        The old one is closed; an adapter that was closed opens again. Called in the
        author's methods, it returns the result of the author's `reset`; called from
        outside, the environment's time step.
        """
        from envkit.adapters.adapter.adapted import start_again

        start_again(self)
        return self.reset()


EnvAdapter = Adapter

__getattr__, __dir__ = lazy_names(__name__, {"Result": "envkit.extend"})


def _settings(cls: type) -> set[str]:
    """Returns the names of attributes that can be set when an adapter is made."""
    owners = cls.__mro__[: cls.__mro__.index(Adapter) + 1]
    return {
        name
        for owner in owners
        for name, value in vars(owner).items()
        if not name.startswith("_")
        and not inspect.isroutine(value)
        and not isinstance(value, property)
    } - {"env_instance", "legal_actions"}


def _check_author(cls: type) -> None:
    """Raises unless a class has everything needed to make an environment."""
    for name in ("reset", "step"):
        if not callable(getattr(cls, name, None)):
            raise TypeError(
                f"{cls.__name__} has no method {name}(). An Adapter has start(), "
                "step(action) and reset(), and close() if there is something to free."
            )
    for name, other in (("get_state", "set_state"), ("set_state", "get_state")):
        if hasattr(cls, name) and not hasattr(cls, other):
            raise TypeError(f"{cls.__name__} has {name}(), but no {other}().")
