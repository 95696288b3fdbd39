"""`Adapter`: support for a library that envkit has never seen, in a few lines.

An author writes a class that asks the library: `start`, `reset`, `step` and, if there
is something to free, `close`. Calling the class makes an environment around an object
of it:

```
LiftEnv(floors=3) ──> AdaptedEnvironment          of envkit: reset() gives a TimeStep
                        └── LiftEnv object        the author's: reset() gives what they
                              └── env_instance    the library's           wrote
```

So the names of the author's attributes are the author's alone.

What an environment takes is imported when one is made: a module with an `Adapter` may
have a `Scheme`, too, which `envkit list` reads without NumPy.
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

# The names by which Python makes an object, and finds and keeps its attributes.
_REFUSED = ("__class__", "__dict__", "__getattribute__", "__new__", "__setattr__")


# The classes of environments that authors have chosen, which have no attribute for it.
_CHOSEN: weakref.WeakKeyDictionary[type, type[AdaptedEnvironment]] = (
    weakref.WeakKeyDictionary()
)


class _AdapterType(abc.ABCMeta):
    """Is the class of `Adapter` and of those that authors derive from it.

    `class Game(Adapter, environment=Played)` has environments of the class `Played`,
    which is derived from `AdaptedEnvironment`, and so have classes derived from `Game`.
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
                f"{name} defines {refused[0]}, through which Python and envkit reach "
                "what else is in the class. An Adapter may define any other name."
            )

    def __call__(cls: type[T], *args: Any, **kwargs: Any) -> T:
        """Makes an environment around an object of the class."""
        from envkit.adapters.adapter.adapted import adapted_class

        _check_author(cls)
        author = type.__call__(cls, *args, **kwargs)
        chosen = [_CHOSEN[base] for base in cls.__mro__ if base in _CHOSEN]
        kind = adapted_class(cls, *chosen[:1])
        return kind(author, (args, kwargs))  # type: ignore[return-value]  # to those who call it

    def __instancecheck__(cls, instance: Any) -> bool:
        """Returns True for what the class makes, and for the object within."""
        from envkit.adapters.adapter.adapted import AdaptedEnvironment

        if isinstance(instance, AdaptedEnvironment):
            instance = instance.author
        return super().__instancecheck__(instance)


if TYPE_CHECKING:
    import numpy.typing as npt

    # To those who call it a class of an author's makes environments.
    _Made = AdaptedEnvironment
else:
    _Made = object


class Adapter(_Made, metaclass=_AdapterType):
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
    | `reward_spec`, `discount_spec` | the same, unless one float32 is right           |
    | `legal_actions(obs)`   | a mask of what is legal, or which actions are           |
    | `seed(seed)`           | called before `reset`; or a `reset` that takes `seed`   |
    | `render(mode)`         | a picture                                               |
    | `get_state()`, `set_state(state)` | all that later steps depend on               |

    All other names are the author's. The environment's methods are not among them:
    `self.step` is what the author has written, and public attributes that the
    environment does not have are the author's.

    Every class attribute can be given when an adapter is made, those of the author
    among them: `Game(size=5)` changes the attribute `size`, unless the author has
    written `__init__`.

    Attributes:
        env_instance: What `start` returned; `None` when there is none.
        realtime: Whether the library's own clock goes on between the steps.
        one_per_process: Whether a process may hold one such environment at a time.
        can_be_made_again: Whether the same arguments make another one, with an
            environment of its own.
        discount: What later rewards are worth, after a step that does not terminate
            the episode.
        floats: What float64 in observations becomes where specs are inferred:
            `np.float32`, for example.
        text_length: How long strings in observations are at most.
        max_lengths: Of lists whose length varies, how long they are at most, by their
            keys or places: `{"path": 9}`, `{"['map']['path']": 9}`; or a number if the
            observation is such a list. They become dictionaries of `length` and
            `values`.
        probe_steps: How many random steps are made, in an environment of their own, to
            see what observations look like.
        checked: Whether bounds of specs are checked.
        fresh_arrays: Whether observations are new arrays of `observation_spec` already,
            as that of an end is, too. They are neither converted, copied nor checked.
        observe_legal_actions: Whether an observation is a dictionary of `observation`
            and `legal_actions`. The mask is in the info, too.
        step_returns: What the parts are of what `step` returns, if they are not told
            by their number: `"reward, observation, done"`.
        reset_returns: The same for `reset`: `"observation"` is not taken apart.

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
    if not TYPE_CHECKING:  # There they are what an environment has.
        one_per_process: bool = False
        observation_spec: NestedSpec = None
        action_spec: NestedSpec = None
        reward_spec: NestedSpec = None
        discount_spec: NestedSpec = None

    def __init__(self, **settings: Any) -> None:
        """Makes an adapter; the library is asked for an environment later.

        Args:
            settings: Attributes of the class that are to be different.
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
        """Closes the library's environment, if that can be closed."""
        close = getattr(self.env_instance, "close", None)
        if callable(close):
            close()

    def restart(self) -> Any:
        """Begins an episode in a new environment of the library's.

        The old one is closed. Within the author's methods this returns what the
        author's `reset` does, and for all others the environment's time step.
        """
        from envkit.adapters.adapter.adapted import start_again

        start_again(self)
        return self.reset()


EnvAdapter = Adapter

__getattr__, __dir__ = lazy_names(__name__, {"Result": "envkit.extend"})


def _settings(cls: type) -> set[str]:
    """Names the attributes that can be given when an adapter is made."""
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
    """Raises unless a class has all that it takes to make an environment."""
    for name in ("reset", "step"):
        if not callable(getattr(cls, name, None)):
            raise TypeError(
                f"{cls.__name__} has no method {name}(). An Adapter has start(), "
                "step(action) and reset(), and close() if there is something to free."
            )
    for name, other in (("get_state", "set_state"), ("set_state", "get_state")):
        if hasattr(cls, name) and not hasattr(cls, other):
            raise TypeError(f"{cls.__name__} has {name}(), but no {other}().")
