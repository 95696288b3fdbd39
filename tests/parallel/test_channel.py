"""Messages and descriptors between two ends, whatever comes in between."""

from __future__ import annotations

import contextlib
import itertools
import os
import pickle
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envkit.parallel.system import channel as channel_module
from envkit.parallel.system import ctrl_c
from envkit.parallel.system.channel import Channel
from tests.parallel.environments import Hostile

TRACED = {channel_module.__file__, ctrl_c.__file__}
# More than the kernel keeps for a reader who does not read.
TOO_MUCH = bytes(8_000_000)


class Counted:
    """Counts how often one was unpickled."""

    times = 0

    def __getstate__(self):
        return {"some": "state"}

    def __setstate__(self, state):
        Counted.times += 1


@contextlib.contextmanager
def linked() -> Iterator[tuple[Channel, Channel]]:
    """Gives the two ends of a channel, and closes them."""
    here, there = Channel.pair()
    with here, there:
        yield here, there


@contextlib.contextmanager
def raw() -> Iterator[tuple[socket.socket, Channel]]:
    """Gives a plain socket and the channel at its other end."""
    wire, end = socket.socketpair()
    with wire, Channel(end) as there:
        yield wire, there


def as_sent(messages: list[object]) -> bytes:
    """Returns the bytes that carry messages."""
    with raw() as (wire, there):
        sent = b""
        for message in messages:
            there.send(message)
            sent += wire.recv(2**20)
        return sent


def open_descriptors() -> int:
    return len(os.listdir("/dev/fd"))


def same_file(first: int, second: int) -> bool:
    return os.path.sameopenfile(first, second)


def interrupted(count: int, call: Callable[[], object]) -> bool:
    """Presses Ctrl-C before the given instruction of the channel's code.

    Returns whether there were so many.
    """
    left = count

    def trace(frame, event, argument):
        nonlocal left
        if frame.f_code.co_filename not in TRACED:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            left -= 1
            if left == 0:
                signal.raise_signal(signal.SIGINT)
        return trace

    before = sys.gettrace()
    # Python 3.12 looks for this when tracing begins.
    sys._getframe().f_trace_opcodes = True
    sys.settrace(trace)
    try:
        call()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


def every_interruption(
    prepare: Callable[[Channel, Channel], Callable[[], object]],
) -> Iterator[tuple[Channel, Channel]]:
    """Interrupts a call at each of its instructions in turn, on fresh ends each time.

    Args:
        prepare: Takes the ends and returns the call.
    """
    count = 0
    again = True
    while again:
        count += 1
        with linked() as (here, there):
            again = interrupted(count, prepare(here, there))
            yield here, there
    # It is a real sweep: the call had many places to be interrupted at.
    assert count > 20


class TestMessages:
    def test_messages_arrive_in_order_in_both_directions(self):
        with linked() as (here, there):
            here.send({"a": 1})
            here.send([2])
            there.send("back")
            assert [{"a": 1}, [2]] == [there.receive(), there.receive()]
            assert "back" == here.receive()

    def test_a_channel_end_is_made_from_a_descriptor(self):
        first, second = socket.socketpair()
        with Channel.attach(first.detach()) as here, Channel(second) as there:
            here.send("hello")
            assert "hello" == there.receive()

    @given(
        messages=st.lists(st.binary(max_size=40), max_size=6),
        cuts=st.lists(st.integers(0, 400), max_size=12),
    )
    def test_messages_are_the_same_however_their_bytes_are_split(self, messages, cuts):
        sent = as_sent(messages)
        places = sorted({0, len(sent), *(cut for cut in cuts if cut < len(sent))})
        received = []

        with raw() as (wire, there):
            for begin, end in itertools.pairwise(places):
                wire.sendall(sent[begin:end])
                received += there.receive_available()

        assert messages == received

    def test_receive_assembles_a_message_byte_by_byte(self):
        sent = as_sent(["slow"])
        with raw() as (wire, there):
            for byte in sent[:-1]:
                wire.sendall(bytes([byte]))
                with pytest.raises(TimeoutError):
                    there.receive(timeout=0)
            wire.sendall(sent[-1:])

            assert "slow" == there.receive(timeout=0)

    def test_large_messages_cross_when_both_sides_send_first(self):
        """Neither side reads before it has written."""
        with linked() as (here, there):
            answers = []

            def other_side():
                there.send(TOO_MUCH)
                answers.append(there.receive())

            thread = threading.Thread(target=other_side)
            thread.start()
            here.send(TOO_MUCH + b"a")
            answer = here.receive()
            thread.join()

            assert TOO_MUCH == answer
            assert [TOO_MUCH + b"a"] == answers

    def test_unsent_messages_are_pending(self):
        with linked() as (here, there):
            thread = threading.Thread(target=lambda: (there.receive(), there.receive()))
            there.send("while you send")
            assert not here.pending
            thread.start()
            here.send(TOO_MUCH)
            here.send(TOO_MUCH)
            thread.join()

            assert here.pending
            assert ["while you send"] == here.receive_available()
            assert not here.pending

    def test_receive_available_without_messages_returns_an_empty_list(self):
        with linked() as (here, _):
            assert [] == here.receive_available()

    def test_receive_available_returns_all_messages(self):
        with linked() as (here, there):
            for number in range(200):
                there.send(number)
            assert list(range(200)) == here.receive_available()


class TestPickling:
    def test_an_unpicklable_message_does_not_affect_the_channel(self):
        with linked() as (here, there):
            with pytest.raises((AttributeError, pickle.PicklingError)):
                here.send(lambda: None)
            here.send("next")
            assert "next" == there.receive()

    def test_a_message_that_cannot_be_unpickled_affects_no_other(self, message_of):
        with linked() as (here, there):
            here.send(Hostile())
            here.send("next")

            expected = "invalid literal for int() with base 10: 'no number'"
            assert expected == message_of(ValueError, there.receive)
            assert "next" == there.receive()

    @pytest.mark.parametrize("receive", [Channel.receive, Channel.receive_available])
    def test_earlier_messages_arrive_before_an_unpickling_error(self, receive):
        with linked() as (here, there):
            for message in ["before", Hostile(), "after"]:
                here.send(message)

            assert ["before"] == there.receive_available()
            assert there.pending
            with pytest.raises(ValueError, match="no number"):
                receive(there)
            assert ["after"] == there.receive_available()
            here.send(Hostile())
            with pytest.raises(ValueError, match="no number"):
                receive(there)

    @pytest.mark.parametrize("receive", [Channel.receive, Channel.receive_available])
    def test_a_message_is_unpickled_once(self, receive):
        with linked() as (here, there):
            Counted.times = 0
            here.send(Counted())
            receive(there)
            assert 1 == Counted.times


class TestDescriptors:
    def test_descriptors_come_with_their_message_and_are_not_inherited(self):
        with linked() as (here, there), open(os.devnull) as file:
            here.send("one", [file.fileno()])
            here.send("none")
            assert "one" == there.receive()
            (taken,) = there.receive_fds()

            assert same_file(file.fileno(), taken)
            assert not os.get_inheritable(taken)
            os.close(taken)
            assert "none" == there.receive()
            assert [] == there.receive_fds()

    def test_descriptors_are_not_inherited_on_any_kernel(self, monkeypatch):
        monkeypatch.setattr(channel_module, "_CLOSE_ON_EXEC", 0)
        with linked() as (here, there), open(os.devnull) as file:
            here.send("one", [file.fileno()])
            there.receive()
            (taken,) = there.receive_fds()
            assert not os.get_inheritable(taken)
            os.close(taken)

    @given(counts=st.lists(st.integers(0, 5), max_size=8))
    def test_each_message_keeps_its_own_descriptors(self, counts):
        with linked() as (here, there), open(os.devnull) as file:
            for number, count in enumerate(counts):
                here.send(number, [file.fileno()] * count)
            brought = []
            for _ in counts:
                there.receive(timeout=0)
                fds = there.receive_fds()
                brought.append(len(fds))
                for fd in fds:
                    os.close(fd)

            assert counts == brought

    def test_descriptors_travel_with_a_large_message(self):
        with linked() as (here, there), open(os.devnull) as file:
            thread = threading.Thread(
                target=here.send, args=(TOO_MUCH, [file.fileno()])
            )
            thread.start()
            message = there.receive()
            thread.join()
            (taken,) = there.receive_fds()

            assert TOO_MUCH == message
            assert same_file(file.fileno(), taken)
            os.close(taken)

    def test_close_closes_unclaimed_descriptors(self):
        before = open_descriptors()
        with linked() as (here, there), open(os.devnull) as file:
            for _ in range(3):
                here.send("message", [file.fileno()] * 2)
            there.receive()  # Two can be taken, two came with the next, two wait.
        assert before == open_descriptors()

    def test_close_continues_past_an_invalid_descriptor(self):
        before = open_descriptors()
        with linked() as (here, there), open(os.devnull) as file:
            here.send("message", [file.fileno()] * 3)
            there.receive()
            os.close(there._untaken[1])
        assert before == open_descriptors()

    def test_too_many_descriptors_in_a_message_are_refused(self, message_of):
        with linked() as (here, there):
            expected = "A message takes 253 descriptors at most, not 254."
            assert expected == message_of(
                ValueError, lambda: here.send("many", [0] * 254)
            )
            here.send("next")
            assert "next" == there.receive()

    def test_losing_descriptors_breaks_the_channel(self):
        """The kernel drops them without a word, and the next would pass for them."""
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        with linked() as (here, there), open(os.devnull) as file:
            here.send("many", [file.fileno()] * 9)
            os.close(lowest := os.dup(0))
            resource.setrlimit(resource.RLIMIT_NOFILE, (lowest + 3, hard))
            try:
                with pytest.raises(ConnectionAbortedError, match="no room"):
                    there.receive()
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

            with pytest.raises(ConnectionAbortedError, match="no room"):
                there.send("more")


class TestEnds:
    @pytest.mark.parametrize("receive", [Channel.receive, Channel.receive_available])
    def test_the_end_comes_after_the_last_message(self, message_of, receive):
        with linked() as (here, there):
            here.send("last")
            here.close()
            assert receive(there) in ("last", ["last"])
            expected = "The other end of the channel is closed."
            for _ in range(2):
                assert expected == message_of(EOFError, lambda: receive(there))

    def test_an_end_within_a_message_is_reported(self, message_of):
        sent = as_sent([bytes(100)])
        missing = len(sent) - 50
        with raw() as (wire, there):
            wire.sendall(sent[:50])
            wire.close()

            assert (
                "The other end of the channel was closed in the middle of a message: "
                f"50 bytes of it had arrived, at least {missing} are missing."
            ) == message_of(EOFError, there.receive)

    def test_closing_without_reading_ends_the_channel(self):
        with linked() as (here, there):
            here.send("unread")
            there.send("last")
            there.close()
            assert "last" == here.receive()
            with pytest.raises(EOFError):
                here.receive()

    def test_sending_to_a_closed_end_is_a_broken_pipe(self, message_of):
        with linked() as (here, there):
            there.close()

            expected = "The other end of the channel is closed."
            assert expected == message_of(BrokenPipeError, lambda: here.send("x"))
            assert expected == message_of(BrokenPipeError, lambda: here.send("x"))

    def test_a_send_that_waits_ends_when_the_other_end_closes(self):
        with linked() as (here, there):
            with pytest.raises(TimeoutError):
                here.send(TOO_MUCH, timeout=0)
            thread = threading.Thread(target=there.close)
            thread.start()
            with pytest.raises(BrokenPipeError):
                here.flush()
            thread.join()

    def test_messages_of_a_closed_end_survive_a_failed_send(self):
        with linked() as (here, there):
            there.send("last words")
            there.close()
            with pytest.raises(BrokenPipeError):
                here.send("too late")
            assert ["last words"] == here.receive_available()

    def test_an_end_is_noticed_while_a_message_is_being_sent(self):
        with linked() as (here, there):
            with pytest.raises(TimeoutError):
                here.send(TOO_MUCH, timeout=0)
            there.close()
            with pytest.raises(EOFError):
                here.receive()

    def test_a_dead_process_ends_calls_even_if_its_socket_stays_open(self):
        """A child it left behind may hold the other end for ever."""
        life, death = os.pipe()
        with linked() as (here, there):
            there.send("last words")
            os.close(death)

            assert "last words" == here.receive(life=life)
            with pytest.raises(EOFError, match=r"^The other process has ended\.$"):
                here.receive(life=life)
            with pytest.raises(BrokenPipeError, match="The other process has ended"):
                here.send(TOO_MUCH, life=life)
        os.close(life)

    def test_close_can_be_called_twice(self):
        here, there = Channel.pair()
        there.close()
        here.close()
        here.close()
        assert -1 == here.fileno()
        assert [] == here.receive_fds()

    def test_a_closed_channel_says_so(self, message_of):
        here, there = Channel.pair()
        there.close()
        here.close()

        expected = "The channel was used after close()."
        for call in (here.receive, here.receive_available, lambda: here.send(1)):
            assert expected == message_of(ValueError, call)

    def test_invalid_bytes_break_the_channel(self, message_of):
        with raw() as (wire, there):
            wire.sendall(b"Segmentation fault")
            expected = (
                "The channel received something that is no message: something else has "
                "written to its descriptor."
            )

            assert expected == message_of(ConnectionAbortedError, there.receive)
            for call in (there.receive, there.receive_available, lambda: there.send(1)):
                assert expected == message_of(ConnectionAbortedError, call)


class TestTimeouts:
    def test_receive_times_out(self, message_of):
        with linked() as (here, there):
            assert "No message arrived within 0.01 s." == message_of(
                TimeoutError, lambda: here.receive(0.01)
            )
            there.send("later")
            assert "later" == here.receive()

    def test_a_late_message_is_finished_by_the_next_call(self, message_of):
        with linked() as (here, there):
            assert "The other side did not read a message within 0 s." == message_of(
                TimeoutError, lambda: here.send(TOO_MUCH, timeout=0)
            )
            assert here.unsent
            thread = threading.Thread(target=here.send, args=("next",))
            thread.start()

            assert TOO_MUCH == there.receive()
            assert "next" == there.receive()
            thread.join()
            assert not here.unsent

    def test_a_timed_out_message_is_not_sent(self):
        with linked() as (here, there):
            while not here.unsent:
                with contextlib.suppress(TimeoutError):
                    here.send(TOO_MUCH, timeout=0)
            with pytest.raises(TimeoutError):
                here.send("never", timeout=0)
            thread = threading.Thread(target=here.send, args=("next",))
            thread.start()

            assert [TOO_MUCH, "next"] == [there.receive(), there.receive()]
            thread.join()

    def test_receive_sends_the_rest_of_a_late_message(self):
        with linked() as (here, there):
            with pytest.raises(TimeoutError):
                here.send(TOO_MUCH, timeout=0)
            thread = threading.Thread(target=lambda: there.send(len(there.receive())))
            thread.start()
            assert len(TOO_MUCH) == here.receive()
            thread.join()


def after_an_alarm(seconds, call):
    """Sets an alarm and calls: on a busy machine the alarm may come first."""
    signal.setitimer(signal.ITIMER_REAL, seconds)
    call()


@pytest.mark.own_process
@pytest.mark.usefixtures("interruptible")
class TestInterruptions:
    def test_an_interrupted_send_sends_all_or_nothing(self):
        def prepare(here, there):
            return lambda: here.send("first")

        for here, there in every_interruption(prepare):
            here.send("second")

            assert there.receive_available() in (["first", "second"], ["second"])

    def test_an_interrupted_large_send_sends_all_or_nothing(self):
        large = bytes(600_000)

        def prepare(here, there):
            def send_what_fits():
                with contextlib.suppress(TimeoutError):
                    here.send(large, timeout=0)

            return send_what_fits

        for here, there in every_interruption(prepare):
            received = []
            while here.unsent:
                received += there.receive_available()
                with contextlib.suppress(TimeoutError):
                    here.flush(timeout=0)
            here.send("second")
            received += there.receive_available()

            assert received in ([large, "second"], ["second"])

    def test_an_interrupted_receive_loses_no_part_of_a_message(self):
        before = open_descriptors()

        def prepare(here, there):
            there.send("first", [there.fileno()])
            there.send("second", [there.fileno()])
            return here.receive

        for here, _ in every_interruption(prepare):
            left = here.receive_available()

            assert left in (["first", "second"], ["second"])
        assert before == open_descriptors()

    def test_interrupted_receive_available_loses_all_or_nothing(self):
        def prepare(here, there):
            for message in range(3):
                there.send(message)
            return here.receive_available

        for here, there in every_interruption(prepare):
            there.send("next")

            assert here.receive_available() in ([0, 1, 2, "next"], ["next"])

    def test_an_interrupted_close_can_be_finished(self):
        """And closes no number twice: it may be another file's by then."""
        before = open_descriptors()

        def prepare(here, there):
            there.send("first", [there.fileno()] * 3)
            here.receive()
            return here.close

        for here, _ in every_interruption(prepare):
            others = [os.dup(0) for _ in range(4)]
            here.close()

            for other in others:
                os.close(other)
        assert before == open_descriptors()

    def test_a_handled_signal_does_not_end_a_wait(self):
        with linked() as (here, there):
            before = signal.signal(signal.SIGALRM, lambda *_: there.send("handled"))
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.02)
                assert "handled" == here.receive()
            finally:
                signal.signal(signal.SIGALRM, before)

    def test_ctrl_c_ends_a_wait_and_nothing_is_lost(self, interruptible):
        with linked() as (here, there):
            before = signal.signal(
                signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT)
            )
            try:
                with pytest.raises(KeyboardInterrupt):
                    after_an_alarm(0.02, here.receive)
            finally:
                signal.signal(signal.SIGALRM, before)
            there.send("after")

            assert "after" == here.receive()
