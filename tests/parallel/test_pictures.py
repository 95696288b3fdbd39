"""The pictures of a pool's environments."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from envkit import ParallelPyEnvironment
from envkit.errors import SpecError
from envkit.testing import CountingEnv


class Growing(CountingEnv):
    """Its pictures have the size that it is given."""

    def __init__(self, size):
        super().__init__()
        self.size = size

    def render(self, mode="rgb_array"):
        return np.zeros((self.size, 4, 3), np.uint8)


def test_pictures_of_several_sizes_are_not_stacked():
    makers = [functools.partial(Growing, size) for size in (2, 2, 5)]
    with ParallelPyEnvironment(makers, backend="inline") as env:
        env.reset()

        assert (2, 2, 4, 3) == env.render(env_ids=[0, 1]).shape
        with pytest.raises(SpecError) as caught:
            env.render()
        alone = env.call("render", "rgb_array")

    assert (
        "The pictures of env 0 and env 2 have the shapes (2, 4, 3) and (5, 4, 3); "
        "those of a batch have one size. For each as it is: call('render', "
        "'rgb_array')."
    ) == str(caught.value)
    assert [2, 2, 5] == [len(picture) for picture in alone]
