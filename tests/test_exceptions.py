from __future__ import annotations

import builtins
import pickle
import sqlite3
import subprocess
import sys
import threading

import cloudpickle
import pytest
from hypothesis import given
from hypothesis import strategies as st

from envkit._internal.exceptions import (
    both,
    packed,
    rebuilt,
    unpacked,
    with_text,
)

# From Python 3.11 on.
ExceptionGroup = getattr(builtins, "ExceptionGroup", None)
BUILT_IN = [
    kind
    for kind in vars(builtins).values()
    if isinstance(kind, type)
    and issubclass(kind, BaseException)
    and "Group" not in kind.__name__
]


class TwoArgumentsError(Exception):
    def __init__(self, one, two):
        super().__init__(f"{one} and {two}")
        self.one, self.two = one, two


class SlottedError(ValueError):
    __slots__ = ("place",)

    def __init__(self, place):
        super().__init__(place)
        self.place = place

    def __str__(self):
        return f"at {self.place}"


class Unspeakable:
    """Can neither be pickled nor be shown."""

    def __reduce__(self):
        raise RuntimeError("no pickle")

    def __repr__(self):
        raise RuntimeError("no repr")


def sent(value):
    return unpacked(packed(value))


@pytest.mark.parametrize("kind", BUILT_IN, ids=lambda kind: kind.__name__)
def test_every_builtin_exception_arrives_with_its_class(kind):
    original = kind.__new__(kind)
    original.args = ("one", 2)
    original.note = "three"
    arrived = sent(original)
    assert kind is type(arrived)
    assert (("one", 2), "three") == (arrived.args, arrived.note)


@pytest.mark.parametrize(
    "original",
    [
        FileNotFoundError(2, "No such file", "level.xml"),
        OSError(5, "x", "a", None, "b"),
        UnicodeDecodeError("utf-8", b"tor\xe9", 3, 4, "unexpected end of data"),
        KeyError("level"),
        SystemExit(3),
        SyntaxError("bad", ("f.py", 1, 2, "x")),
    ],
    ids=lambda original: type(original).__name__,
)
def test_a_builtin_exception_arrives_with_its_text(original):
    assert str(original) == str(sent(original))


def test_an_os_error_arrives_with_its_number_and_file():
    arrived = sent(FileNotFoundError(2, "No such file", "level.xml"))
    assert (2, "No such file", "level.xml") == (
        arrived.errno,
        arrived.strerror,
        arrived.filename,
    )


def test_slots_are_not_sent():
    arrived = sent(SlottedError("here"))
    assert (SlottedError, ("here",)) == (type(arrived), arrived.args)
    assert not hasattr(arrived, "place")


def test_a_message_built_from_slots_survives():
    shown = with_text(sent(SlottedError("here")), "at here")
    again = sent(shown)

    for error in (shown, again):
        assert isinstance(error, SlottedError)
        assert ("SlottedError", ("here",)) == (type(error).__name__, error.args)
        assert "at here" == str(error)
    assert with_text(again, "at here") is again


@given(
    args=st.lists(st.integers() | st.text() | st.none() | st.floats(allow_nan=False)),
    attributes=st.dictionaries(st.text(st.characters(categories=["Ll"])), st.text()),
)
def test_args_and_attributes_of_any_kind_arrive(args, attributes):
    original = rebuilt(TwoArgumentsError, tuple(args), attributes)
    arrived = sent(original)
    assert (tuple(args), attributes) == (arrived.args, vars(arrived))


def test_exceptions_are_rebuilt_without_their_constructor():
    arrived = sent(TwoArgumentsError(1, 2))
    assert ("1 and 2", 1, 2) == (str(arrived), arrived.one, arrived.two)


def test_exceptions_inside_other_values_arrive():
    arrived = sent([{"why": TwoArgumentsError(1, 2)}])
    assert 2 == arrived[0]["why"].two


def test_an_exception_that_contains_itself_arrives():
    original = TwoArgumentsError(1, 2)
    original.itself = original
    original.lock = threading.Lock()
    arrived = sent(original)
    assert arrived.itself is arrived


def test_values_that_cannot_be_pickled_are_left_out():
    lock = threading.Lock()
    original = TwoArgumentsError(1, 2)
    original.args = (lock, 3)
    original.lock = lock
    arrived = sent(original)
    assert (repr(lock), 3) == arrived.args
    assert {"one": 1, "two": 2} == vars(arrived)


def test_an_argument_without_a_repr_is_named_by_its_class():
    arrived = sent(ValueError(Unspeakable()))
    assert "Unspeakable object at" in arrived.args[0]


def test_an_attribute_error_is_sent_without_its_object():
    original = AttributeError("no x", name="x", obj=Unspeakable())
    assert ("no x", None) == (str(sent(original)), sent(original).obj)


@pytest.mark.skipif(not ExceptionGroup, reason="groups came with Python 3.11")
def test_exceptions_in_a_group_lose_what_cannot_be_pickled():
    one = TwoArgumentsError(1, 2)
    one.lock = threading.Lock()
    arrived = sent(ExceptionGroup("two", [one, KeyError("x")]))
    assert ("two", 2) == (arrived.message, len(arrived.exceptions))
    assert {"one": 1, "two": 2} == vars(arrived.exceptions[0])


@pytest.mark.skipif(not ExceptionGroup, reason="groups came with Python 3.11")
def test_a_group_with_a_constructor_of_its_own_arrives():
    class Failures(ExceptionGroup):
        def __new__(cls, message, exceptions, when):
            self = super().__new__(cls, message, exceptions)
            self.when = when
            return self

    arrived = sent(Failures("two", [KeyError("x")], 3))
    assert ("two", 3) == (arrived.message, arrived.when)
    assert isinstance(arrived, Failures)
    assert issubclass(both(RuntimeError, Failures), ExceptionGroup)


def test_packing_returns_none_for_values_that_cannot_be_pickled():
    assert None is packed(threading.Lock())
    assert None is unpacked(None)


def test_unpacking_returns_the_default_for_unreadable_data():
    assert "default" == unpacked(b"not a pickle", "default")
    assert None is unpacked(pickle.dumps(TwoArgumentsError(1, 2)))


def test_a_module_that_nobody_imported_is_not_imported_for_an_error(monkeypatch):
    data = packed(sqlite3.OperationalError("no"))
    monkeypatch.delitem(sys.modules, "sqlite3")
    assert None is unpacked(data)
    assert "sqlite3" not in sys.modules


def test_a_class_sent_by_value_is_the_same_class_on_return():
    """A worker that was given a constructor of a notebook raises what it defines."""

    class NotebookError(Exception):
        def __init__(self, one, two):
            super().__init__(one, two)

    def make():
        raise NotebookError(1, 2)

    program = (
        "import pickle\n"
        "from envkit._internal.exceptions import packed\n"
        f"make = pickle.loads({cloudpickle.dumps(make)!r})\n"
        "try:\n"
        "    make()\n"
        "except Exception as error:\n"
        "    print(packed(error).hex())"
    )
    output = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout

    arrived = unpacked(bytes.fromhex(output))

    assert NotebookError is type(arrived)
    assert (1, 2) == arrived.args


def test_a_returned_class_is_left_unchanged():
    """cloudpickle would give it the attributes that it had when it left."""

    class NotebookError(Exception):
        raised = 0

    data = cloudpickle.dumps(NotebookError("down"))
    NotebookError.raised = 3
    arrived = unpacked(data)
    assert NotebookError is type(arrived)
    assert 3 == NotebookError.raised


def test_packing_does_not_import_the_module_of_a_class_sent_by_value():
    kind = type("GoneError", (Exception,), {"__module__": "this"})
    data = packed(kind("no"))
    assert "this" not in sys.modules
    assert kind is type(unpacked(data))


def test_a_combined_class_is_made_once_from_both_bases():
    kind = both(RuntimeError, FileNotFoundError)
    assert kind is both(RuntimeError, FileNotFoundError)
    assert issubclass(kind, RuntimeError)
    assert issubclass(kind, FileNotFoundError)


@pytest.mark.parametrize(
    "theirs",
    [RuntimeError, Exception, BaseException, SystemExit, StopIteration, SyntaxError],
)
def test_no_combined_class_is_made_if_one_is_enough(theirs):
    assert RuntimeError is both(RuntimeError, theirs)


def test_a_class_that_is_both_already_is_enough():
    assert NotImplementedError is both(RuntimeError, NotImplementedError)


def test_classes_whose_layouts_conflict_are_not_combined():
    assert OSError is both(OSError, UnicodeDecodeError)
