"""An environment played with keys: `Game`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from envkit import nest
from envkit._shared.actions_and_rewards import agent_rewards
from envkit.play.key_map import KeyMap
from envkit.play.keys import MODIFIERS, Pointed, key_text
from envkit.play.shortcuts import PLAYING, Shortcuts
from envkit.play.tally import Tally
from envkit.time_step import TimeStep
from envkit.types import Array

__all__ = ["Game", "number_text"]

# How many characters fit below the picture.
_LINE = 79
# Labels of actions begin with their numbers.
_NUMBER = re.compile(r"^-?\d+ ")


class Game:
    """Lets keys play an environment, one episode after another.

    With `press`, time waits for keys. `tick` is called at a steady pace, and time
    passes even without keys. Both work with a window, a terminal, or a list of keys.

    Attributes:
        notice: What the player should know about the last key; "" for nothing.
        over: Whether the player has quit.
        explaining: Whether the keys are explained, until one is pressed.
        paused: Whether the game is paused.
        time_step: The current time step.
        shortcuts: The keys that are not actions.

    Example:
        >>> from envkit import make
        >>> from envkit.play.key_map import key_map
        >>> env = make("Catch", rows=3, seed=1)
        >>> game = Game(env, key_map(env))
        >>> for key in "dd":
        ...     game.press((key,))
        >>> game.status()
        'episode 1   step 2   reward -1   return -1   terminated'
    """

    def __init__(
        self,
        env: Any,
        keys: KeyMap,
        *,
        pause_after: int = 0,
        explaining: bool = False,
    ) -> None:
        """Begins the first episode.

        Args:
            env: A single environment.
            keys: The keys of its actions.
            pause_after: For how many ticks to show the end of an episode.
            explaining: Whether to explain the keys first.
        """
        self.notice = ""
        self.over = False
        self.explaining = explaining
        self.paused = False
        self.shortcuts = Shortcuts(PLAYING, keys.keys)
        self._env, self._keys, self._tally = env, keys, Tally(1)
        self._pause_after, self._ticks_left = pause_after, 0
        self._episode = 0
        self._last_action: Any = None
        self.time_step: TimeStep
        self._return: Array
        self._begin()

    def press(self, pressed: Sequence[str]) -> None:
        """Handles keys that are pressed together, the newest last."""
        if not self._handle(pressed[-1]) and not self.paused:
            self._act(self._keys.action(pressed))

    def release(self, down: Sequence[str] = ()) -> None:
        """Makes a step in which a program releases all keys that are no longer down.

        A program holds keys until the next action; other environments need no step.
        """
        release = getattr(self._keys, "release", None)
        if release is not None and not (self.explaining or self.paused or self.ended):
            self._act(release(down))

    def point(self, pointed: Sequence[Pointed]) -> None:
        """Records the pointer's actions for the next step, if it has any."""
        point = getattr(self._keys, "point", None)
        if point is not None and not (self.explaining or self.paused or self.ended):
            point(pointed)

    def lines(self) -> tuple[str, str]:
        """Returns the lines below the picture."""
        if self.explaining:
            return "", "any key: play"
        return self.status(), self.notice or self.shortcuts.text()

    def tick(self, down: Sequence[str], fresh: Sequence[str] = ()) -> None:
        """Makes one step.

        If no key with a meaning is down, it uses the action for no key, or else repeats
        the last one.

        Args:
            down: The keys that are down, the newest last.
            fresh: The keys that were pressed since the last tick.
        """
        for key in fresh:
            self._handle(key)
        if self.explaining or self.paused or self.over:
            return
        if self._ticks_left:
            self._ticks_left -= 1
            return
        action = self._keys.action(down) if down else None
        if action is None:
            action = self._keys.idle_action()
        if action is None:
            action = self._last_action
        self._act(action)

    def status(self) -> str:
        """Returns the episode, the step and the rewards as text."""
        parts = [
            f"episode {self._episode}",
            f"step {self._step}",
            f"reward {number_text(self.time_step.reward)}",
            f"return {number_text(self._return)}",
        ]
        if self.ended:
            parts.append(self._ending())
        elif self.paused:
            parts.append("paused")
        return "   ".join(parts)

    def summary(self) -> str:
        """Returns the number of episodes and steps, and the mean return, as text."""
        return self._tally.summary()

    @property
    def steps(self) -> int:
        """The number of steps of all episodes."""
        return self._tally.steps

    @property
    def ended(self) -> bool:
        """Whether the episode is over."""
        return bool(np.all(self.time_step.is_last()))

    def _handle(self, key: str) -> bool:
        """Handles a key that was just pressed; returns True if it is no action."""
        is_action = self._keys.knows(key)
        if key in MODIFIERS and not is_action:
            return True
        self.notice = ""
        if self._control(key):
            return True
        if not is_action:
            self.notice = self._unknown(key)
        return False

    def _unknown(self, key: str) -> str:
        """Says that a key means nothing, and shows as many keys as fit."""
        text, keys = f"{key_text(key)} means nothing here.", self._keys.table()
        help_text = self.shortcuts.text(("keys",))
        for number, (shown, label) in enumerate(keys, 1):
            name = _NUMBER.sub("", label).partition(":")[0]
            added = f"{text}  {shown.split(', ')[0]} {name}"
            rest = f"  {'…  ' if number < len(keys) else ''}{help_text}"
            if len(added + rest) > _LINE:
                return f"{text}  …  {help_text}"
            text = added
        return f"{text}  {help_text}"

    def _control(self, key: str) -> bool:
        meaning = self.shortcuts.of(key)
        if meaning == "quit":
            self.over = True
        elif self.explaining:
            self.explaining = False
            return True
        elif meaning == "keys":
            self.explaining = True
        elif meaning == "pause":
            self.paused = not self.paused
        elif meaning == "reset":
            self._begin()
        return meaning is not None

    def _act(self, action: Any) -> None:
        if action is None or self.over:
            return
        if self.ended:
            self._begin()
            return
        self._last_action = action
        self.time_step = self._env.step(action)
        self._tally.see(self.time_step)
        self._step += 1
        self._return = self._return + agent_rewards(self.time_step.reward)
        if self.ended:
            self._ticks_left = self._pause_after

    def _begin(self) -> None:
        self.time_step = self._env.reset()
        self._tally.see(self.time_step)
        self._episode += 1
        self._step, self._ticks_left = 0, 0
        self._return = np.zeros_like(agent_rewards(self.time_step.reward))

    def _ending(self) -> str:
        # If there are several agents, some may still earn rewards.
        leaves = nest.flatten(self.time_step.discount)
        worthless = all(not np.any(np.asarray(leaf)) for leaf in leaves)
        return "terminated" if worthless else "truncated"


def number_text(number: Any) -> str:
    """Writes rewards in a few characters.

    Example:
        >>> number_text(np.float32(0.1)), number_text(np.array([1.0, -0.5]))
        ('0.1', '1, -0.5')
    """
    leaves = [np.asarray(leaf).reshape(-1) for leaf in nest.flatten(number)]
    return ", ".join(f"{value:.4g}" for leaf in leaves for value in leaf.tolist())
