"""A class whose second base comes late is a class like any other."""

from __future__ import annotations

import copy
import pickle
from collections import UserDict

from envkit.adapters.late_base import LateBase


class Settings(LateBase):
    """Keeps what it is given, and says how often that was."""

    times = 0

    @classmethod
    def _load_base(cls):
        return UserDict

    def __init__(self, **given):
        super().__init__(given)

    def update(self, *args):
        self.times += 1
        super().update(*args)


class Careful(Settings):
    """Inherits further."""


def test_an_object_is_of_the_class_and_of_its_late_base():
    settings = Settings(speed=2)

    assert (True, True) == (
        isinstance(settings, Settings),
        isinstance(settings, UserDict),
    )


def test_super_finds_what_the_late_base_has():
    settings = Settings(speed=2)

    settings.update({"speed": 3})

    assert ({"speed": 3}, 2) == (settings.data, settings.times)


def test_all_objects_of_a_class_are_of_one_completed_class():
    assert type(Settings()) is type(Settings())
    assert "Settings" == type(Settings()).__name__


def test_the_completed_class_can_be_called_too():
    assert type(Settings()) is type(type(Settings())(speed=2))


def test_a_subclass_is_completed_by_itself():
    careful = Careful(speed=2)

    assert (True, True, "Careful") == (
        isinstance(careful, Settings),
        isinstance(careful, UserDict),
        type(careful).__name__,
    )


def test_an_object_is_copied_and_pickled():
    settings = Settings(speed=[2])

    for twin in (copy.deepcopy(settings), pickle.loads(pickle.dumps(settings))):
        twin["speed"].append(3)

        assert ([2, 3], [2], 1) == (twin["speed"], settings["speed"], twin.times)
        assert type(twin) is type(settings)
