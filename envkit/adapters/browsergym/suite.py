"""BrowserGym: tasks in a web browser as envkit environments.

`load` makes a task by its name, and `BrowserGymWrapper` adapts one. Playwright, which
drives the browser, only works in the thread that started it, and allows one event loop
per process; so a pool gives each task its own process.
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
import shutil
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from envkit.adapters.foreign import (
    ForeignEnvironment,
    limited_and_wrapped,
    require,
)
from envkit.errors import SpecError
from envkit.extend import checked_size, describe, suggestion
from envkit.py_environment import PyEnvironment
from envkit.specs.arrays import ArraySpec, BoundedArraySpec
from envkit.specs.special import ObjectSpec, TextSpec
from envkit.types import Array, NestedArray
from envkit.wrappers.limits import TimeLimit

__all__ = ["BrowserGymWrapper", "load", "names"]

_LOGGER = logging.getLogger(__name__)
_PREFIX = "browsergym/"
_BROWSERS = ("chromium", "chromium-browser", "google-chrome")
_USUAL = ("goal", "axtree", "url", "last_action_error")
# Texts made from one of BrowserGym's structures, by the structure's name.
_MADE = {"axtree": "axtree_object", "dom": "dom_object"}
_TEXTS = frozenset(
    [*_MADE, "goal", "url", "focused_element_bid", "last_action", "last_action_error"]
)
_OBJECTS = frozenset(
    [
        *_MADE.values(),
        "active_page_index",
        "chat_messages",
        "elapsed_time",
        "extra_element_properties",
        "goal_object",
        "open_pages_titles",
        "open_pages_urls",
    ]
)
_PICTURE = "screenshot"


def load(
    environment_name: str,
    discount: float = 1.0,
    max_episode_steps: int | None = None,
    env_wrappers: Sequence[Callable[[PyEnvironment], PyEnvironment]] = (),
    *,
    observations: Sequence[str] = _USUAL,
    lengths: Mapping[str, int] | None = None,
    executable_path: str | None = None,
    task_kwargs: Mapping[str, Any] | None = None,
    **kwargs: Any,
) -> PyEnvironment:
    """Makes a BrowserGym task.

    `envkit.make("browsergym:miniwob.click-test")` calls this. MiniWoB++ pages come from
    the package `miniwob`, if it is installed, unless `task_kwargs` has another
    `base_url`.

    Args:
        environment_name: The task, such as `"miniwob.click-test"`, with or without the
            prefix `browsergym/`. The part before the dot is a BrowserGym package, which
            is imported.
        discount: The discount of steps that do not terminate the episode.
        max_episode_steps: The number of steps after which an episode is truncated;
            BrowserGym has no limit.
        env_wrappers: Wrappers for the environment, innermost first.
        observations: As for `BrowserGymWrapper`.
        lengths: As for `BrowserGymWrapper`.
        executable_path: As for `BrowserGymWrapper`.
        task_kwargs: Keyword arguments for the task.
        **kwargs: Arguments for BrowserGym's environment: `viewport`, `headless`,
            `pre_observation_delay`, `action_mapping` and others.
    """
    _require(f"The environment {environment_name!r}")
    import gymnasium

    name = environment_name.removeprefix(_PREFIX)
    _register(name)
    given = dict(task_kwargs or {})
    pages = _pages_of_miniwob()
    if name.startswith("miniwob.") and pages is not None:
        given.setdefault("base_url", pages)
    if given:
        kwargs["task_kwargs"] = given
    env: PyEnvironment = BrowserGymWrapper(
        # Its observation checks are made for numbers, and would warn.
        gymnasium.make(_PREFIX + name, disable_env_checker=True, **kwargs),
        discount,
        observations=observations,
        lengths=lengths,
        executable_path=executable_path,
    )
    return limited_and_wrapped(env, max_episode_steps, TimeLimit, env_wrappers)


def names() -> list[str]:
    """Lists the tasks of MiniWoB++, if installed, and of packages imported so far.

    Other tasks can be made too: that imports their packages.
    """
    _require("envkit.adapters.browsergym")
    importlib.import_module("browsergym.core")  # registers a task
    if _exists("browsergym.miniwob"):
        importlib.import_module("browsergym.miniwob")
    return sorted(_registered())


class BrowserGymWrapper(ForeignEnvironment):
    """Wraps a BrowserGym environment.

    | `observations`                                     | spec                        |
    |----------------------------------------------------|-----------------------------|
    | `"goal"`, `"url"`, `"last_action"`                 | an object: a string of any  |
    |                                                    | length; with `lengths`, text|
    | `"focused_element_bid"`, `"last_action_error"`     | the same                    |
    | `"axtree"`: the accessibility tree as text         | the same                    |
    | `"dom"`: the visible HTML                          | the same                    |
    | `"screenshot"`                                     | uint8, (height, width, 3)   |
    | `"axtree_object"`, `"dom_object"`, `"goal_object"` | BrowserGym's own objects    |
    | `"chat_messages"` and other keys of BrowserGym     | the same                    |

    `"axtree"` gives each element's number in brackets, and `"dom"` the same numbers.
    An action is a string, such as `"click('13')"`. The end of a task, successful or
    not, terminates the episode.
    """

    _in_state = ()
    _library = "BrowserGym"

    def __init__(
        self,
        gym_env: Any,
        discount: float = 1.0,
        *,
        observations: Sequence[str] = _USUAL,
        lengths: Mapping[str, int] | None = None,
        executable_path: str | None = None,
    ) -> None:
        """Wraps an environment; closing the wrapper closes it.

        Args:
            gym_env: A `BrowserEnv`, with or without Gymnasium wrappers.
            discount: The discount of steps that do not terminate the episode.
            observations: The parts of an observation. For `"screenshot"`, the task is
                begun once to find its size.
            lengths: The maximum lengths of some texts, by name. These become text of a
                fixed width, which travels between processes as fast as numbers; a
                longer text is an error. `"action"` is for actions.
            executable_path: The browser. `None` for the one that Playwright installed,
                or else a Chromium or Chrome on this system.
        """
        _require("BrowserGymWrapper")
        super().__init__(handle_auto_reset=True)
        self._foreign = gym_env
        self._browser_env = gym_env.unwrapped
        self._name = f"BrowserGym's {gym_env.spec.id if gym_env.spec else 'task'}"
        self._parts = _checked_parts(observations)
        self._lengths = _checked_lengths(lengths, self._parts)
        self._random = np.random.default_rng()
        self._picture: Array | None = None
        self._driver = _Driver.shared(executable_path)
        self._action_spec = _text_spec("action", self._lengths, _Actions())
        try:
            self._observation_spec = {part: self._spec_of(part) for part in self._parts}
            self._prepare(discount)
        except BaseException:
            self.close()
            raise

    def _spec_of(self, part: str) -> ArraySpec:
        if part in _TEXTS:
            return _text_spec(part, self._lengths, _Strings())
        if part != _PICTURE:
            return ObjectSpec(name=part)
        observation, _ = self._begin_task(0)
        shape = observation[_PICTURE].shape
        return BoundedArraySpec(shape, np.uint8, 0, 255, name=part)

    def _begin(self, seed: int | None, options: Any) -> tuple[Any, Any]:
        if seed is None:
            # Each episode is a separate task; without a seed, a random one.
            return self._begin_task(int(self._random.integers(2**31)))
        seed %= 2**32
        self._random = np.random.default_rng(seed)
        return self._begin_task(seed)

    def _begin_task(self, seed: int) -> tuple[Any, Any]:
        self._driver.enter(self._name)
        # BrowserGym closes the previous episode's browser, which fails if it has
        # crashed; then no reset would ever succeed again.
        self._end_browser()
        observation, info = self._foreign.reset(seed=seed)
        return observation, info

    def _move(self, action: str) -> Any:
        self._driver.enter(self._name)
        return self._foreign.step(action)

    def _to_action(self, action: NestedArray) -> str:
        return str(np.asarray(action).item())

    def _to_observation(self, observation: Mapping[str, Any]) -> dict[str, NestedArray]:
        self._picture = observation[_PICTURE]
        return {part: self._leaf(part, observation) for part in self._parts}

    def _leaf(self, part: str, observation: Mapping[str, Any]) -> Array:
        spec = self._observation_spec[part]
        if part == _PICTURE:
            picture: Array = observation[part]
            if picture.shape != spec.shape:
                self._refuse(part, describe(picture), "The page has another size now.")
            return np.array(picture, np.uint8)
        if part not in _TEXTS:
            return np.asarray(ObjectSpec.wrap(observation[part]))
        text = _text_of(part, observation)
        if isinstance(spec, ObjectSpec):
            return np.asarray(ObjectSpec.wrap(text))
        if len(text) > spec.max_length:
            reason = f"Make it with lengths={{{part!r}: {len(text)}}}, or without it."
            self._refuse(part, f"a text of {len(text)} characters", reason)
        return np.array(text, spec.dtype)

    def _refuse(self, part: str, got: str, reason: str) -> None:
        raise SpecError.does_not_fit(
            f"{self._name} returned an observation that",
            path=f"[{part!r}]",
            expected=repr(self._observation_spec[part]),
            got=got,
            reason=reason,
        )

    def _draw(self, mode: str) -> Any:
        if mode != "rgb_array":
            raise NotImplementedError(
                f"{self._name} renders 'rgb_array' alone, not {mode!r}; "
                "headless=False shows the browser."
            )
        if self._picture is None:
            self.reset()
        return self._picture

    def _get_state(self) -> Any:
        raise NotImplementedError(
            f"{self._name} has no state to save: it is a page in a browser."
        )

    def _close(self) -> None:
        try:
            if self._driver.is_running:
                self._driver.enter(self._name)
                self._end_browser()
        finally:
            self._driver.leave()

    def _end_browser(self) -> None:
        """Closes the task and its browser, which may have crashed."""
        from playwright.sync_api import Error

        try:
            self._browser_env.close()
        except Error as error:
            _LOGGER.warning("%s: its browser had ended: %s", self._name, error)
            for part in ("task", "chat", "context", "browser"):
                setattr(self._browser_env, part, None)


def _require(needed_by: str) -> None:
    # BrowserGym itself is a folder of several packages; its core installs this one.
    require("playwright", needed_by=needed_by, extra="browsergym")
    require("gymnasium", needed_by=needed_by, extra="browsergym")


def _exists(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def _registered() -> list[str]:
    import gymnasium

    found = [name for name in gymnasium.registry if name.startswith(_PREFIX)]
    return [name.removeprefix(_PREFIX) for name in found]


def _register(name: str) -> None:
    """Imports the package of a task, unless the task is known already."""
    importlib.import_module("browsergym.core")  # registers a task
    if name in _registered():
        return
    family = name.partition(".")[0]
    if _exists(f"browsergym.{family}"):
        importlib.import_module(f"browsergym.{family}")
    known = _registered()
    if name in known:
        return
    if not _exists(f"browsergym.{family}"):
        raise ValueError(
            f"There is no task {name!r}: no package browsergym.{family} is installed."
            f"{suggestion(name, known)} pip install browsergym-{family}, if there is "
            "one."
        )
    raise ValueError(
        f"browsergym.{family} has no task {name!r}.{suggestion(name, known)}"
    )


def _pages_of_miniwob() -> str | None:
    """Returns the address of the pages in the package `miniwob`, if installed."""
    found = importlib.util.find_spec("miniwob")
    if found is None or found.origin is None:
        return None
    folder = Path(found.origin).parent / "html" / "miniwob"
    return f"{folder.as_uri()}/"


def _checked_parts(observations: Sequence[str]) -> tuple[str, ...]:
    known = {*_TEXTS, *_OBJECTS, _PICTURE}
    if isinstance(observations, str):
        raise TypeError(
            f"observations must be a list of names, got the string {observations!r}."
        )
    unknown = [part for part in observations if part not in known]
    if unknown:
        raise ValueError(
            f"observations has {unknown[0]!r}, which is not part of BrowserGym's "
            f"observations.{suggestion(unknown[0], known)} There are "
            f"{', '.join(sorted(known))}."
        )
    return tuple(dict.fromkeys(observations))


def _checked_lengths(
    lengths: Mapping[str, int] | None, parts: Sequence[str]
) -> dict[str, int]:
    texts = {"action", *_TEXTS.intersection(parts)}
    checked = {}
    for part, length in (lengths or {}).items():
        if part not in texts:
            raise ValueError(
                f"lengths has {part!r}, which must be one of the texts "
                f"{', '.join(sorted(texts))}."
            )
        checked[part] = checked_size(f"lengths[{part!r}]", length)
    return checked


def _text_spec(part: str, lengths: Mapping[str, int], kind: Any) -> ArraySpec:
    if part in lengths:
        return TextSpec((), f"<U{lengths[part]}", part)
    return ObjectSpec(name=part, kind=kind)


def _text_of(part: str, observation: Mapping[str, Any]) -> str:
    if part not in _MADE:
        return str(observation[part])
    from browsergym.utils import obs

    properties = observation["extra_element_properties"]
    if part == "axtree":
        tree = observation[_MADE[part]]
        return str(obs.flatten_axtree_to_str(tree, properties))
    html = obs.flatten_dom_to_str(observation[_MADE[part]], properties)
    return str(obs.prune_html(html))


class _Strings:
    """Accepts strings."""

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self)

    def __hash__(self) -> int:
        return hash(type(self))

    def __repr__(self) -> str:
        return "strings"

    def contains(self, value: Any) -> bool:
        return isinstance(value, str)

    def sample(self, rng: Any) -> str:
        return "x" * int(rng.integers(5))


class _Actions(_Strings):
    """Accepts actions; samples are valid on every page."""

    def __repr__(self) -> str:
        return "actions of BrowserGym"

    def sample(self, rng: Any) -> str:
        return ("noop(0)", "scroll(0, 100)", "scroll(0, -100)")[int(rng.integers(3))]


class _Driver:
    """Starts Playwright for this process's environments, and stops it after them."""

    _shared: _Driver | None = None

    def __init__(self) -> None:
        self._thread = threading.get_ident()
        self._users = 0
        self._playwright: Any = None
        self.executable_path: str | None = None

    @classmethod
    def shared(cls, executable_path: str | None) -> _Driver:
        """Returns this process's driver, for another environment."""
        if cls._shared is None:
            cls._shared = cls()
        driver = cls._shared
        if driver._users and executable_path not in (None, driver.executable_path):
            raise ValueError(
                f"executable_path is {executable_path!r}, but other environments of "
                f"this process use {driver.executable_path!r}. A process has one "
                "browser: close the others first."
            )
        driver._users += 1
        if executable_path is not None:
            driver.executable_path = executable_path
        return driver

    @property
    def is_running(self) -> bool:
        return self._playwright is not None

    def enter(self, name: str) -> None:
        """Starts Playwright unless it runs; raises in any thread but its own."""
        if not self.is_running:
            self._thread = threading.get_ident()
            self._start(name)
        elif threading.get_ident() != self._thread:
            raise RuntimeError(
                f"{name} was used in a thread other than the one that started "
                "Playwright, which Playwright does not allow. Give it its own "
                "process: envkit.make(..., num_envs=1)."
            )

    def _start(self, name: str) -> None:
        import asyncio

        import browsergym.core
        from playwright.sync_api import sync_playwright

        try:
            asyncio.get_running_loop()
        except RuntimeError:
            pass
        else:
            raise RuntimeError(
                f"{name} was used in a program with an event loop, such as a notebook, "
                "where Playwright cannot start. Give it its own process: "
                "envkit.make(..., num_envs=1)."
            )
        self._playwright = sync_playwright().start()
        if self.executable_path is None:
            self.executable_path = _browser_for(self._playwright)
        # BrowserGym starts two browsers per episode, and only one of them takes
        # arguments; both go through this object.
        browsergym.core._set_global_playwright(
            _WithBrowser(self._playwright, self.executable_path)
        )

    def leave(self) -> None:
        """Stops Playwright with the last environment."""
        self._users -= 1
        if self._users:
            return
        type(self)._shared = None
        if self.is_running:
            import browsergym.core

            browsergym.core._set_global_playwright(None)
            self._playwright.stop()


def _browser_for(playwright: Any) -> str:
    own: str = playwright.chromium.executable_path
    if Path(own).exists():
        return own
    found = next(filter(None, map(shutil.which, _BROWSERS)), None)
    if found is None:
        raise FileNotFoundError(
            f"BrowserGym needs a browser: there is none at {own}, and no "
            f"{' or '.join(_BROWSERS)} either. Run: playwright install chromium"
        )
    return found


class _WithBrowser:
    """Acts as Playwright, except that its Chromium is the browser at a path."""

    def __init__(self, playwright: Any, executable_path: str) -> None:
        self._playwright = playwright
        self.chromium = _Chromium(playwright.chromium, executable_path)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._playwright, name)


class _Chromium:
    def __init__(self, chromium: Any, executable_path: str) -> None:
        self._chromium = chromium
        self._executable_path = executable_path

    def __getattr__(self, name: str) -> Any:
        return getattr(self._chromium, name)

    def launch(self, **kwargs: Any) -> Any:
        return self._chromium.launch(
            **{"executable_path": self._executable_path, **kwargs}
        )
