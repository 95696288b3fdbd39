"""The base class of vector environments, as far as environments are concerned."""

from __future__ import annotations

import abc


class VecEnv(abc.ABC):
    """Keeps seeds and options for the next reset."""

    def __init__(self, num_envs, observation_space, action_space):
        self.num_envs = num_envs
        self.observation_space = observation_space
        self.action_space = action_space
        self.reset_infos = [{} for _ in range(num_envs)]
        self._reset_seeds()
        self._reset_options()
        (self.render_mode,) = set(self.get_attr("render_mode"))
        self.metadata = {}

    def _reset_seeds(self):
        self._seeds = [None] * self.num_envs

    def _reset_options(self):
        self._options = [{} for _ in range(self.num_envs)]

    def seed(self, seed=None):
        self._seeds = [(seed or 0) + row for row in range(self.num_envs)]
        return self._seeds

    def set_options(self, options=None):
        alike = isinstance(options, dict)
        self._options = [options] * self.num_envs if alike else options

    def step(self, actions):
        self.step_async(actions)
        return self.step_wait()

    def has_attr(self, attr_name):
        try:
            self.get_attr(attr_name)
        except AttributeError:
            return False
        return True

    @abc.abstractmethod
    def reset(self):
        """Resets everything."""

    @abc.abstractmethod
    def step_async(self, actions):
        """Takes actions."""

    @abc.abstractmethod
    def step_wait(self):
        """Returns what comes of them."""

    @abc.abstractmethod
    def close(self):
        """Closes everything."""

    @abc.abstractmethod
    def get_attr(self, attr_name, indices=None):
        """Returns an attribute."""

    @abc.abstractmethod
    def set_attr(self, attr_name, value, indices=None):
        """Sets an attribute."""

    @abc.abstractmethod
    def env_method(self, method_name, *method_args, indices=None, **method_kwargs):
        """Calls a method."""

    @abc.abstractmethod
    def env_is_wrapped(self, wrapper_class, indices=None):
        """Says whether environments are wrapped."""
