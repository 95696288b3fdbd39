"""Checks of requests, which concern environments but not their episodes."""

from __future__ import annotations

from typing import Any

import numpy as np

from envkit.parallel.messages import RemoteFailure
from envkit.parallel.slab_layout import RESET, STEP
from envkit.testing.contract.findings import Broken, broken
from tests.parallel.contract.crew import Crew
from tests.parallel.contract.environments import WAIT
from tests.parallel.contract.trial import BackendTrial

__all__ = [
    "big_payload",
    "interleaved",
    "methods",
    "replies",
    "request_failures",
    "state",
    "unsendable_results",
]

_BIG = 20_000_000


def _look(what: str, due: Any, got: Any) -> None:
    if isinstance(got, RemoteFailure):
        last = got.traceback.strip().splitlines()[-1]
        raise broken(
            f"{what} failed.",
            "Nothing was wrong with it.",
            got=last,
        )
    if due != got:
        raise broken(
            f"{what} has another answer.",
            "An answer is what the method of the environment returned.",
            expected=repr(due)[:200],
            got=repr(got)[:200],
        )


def methods(trial: BackendTrial) -> None:
    """`call`, `access`, `render`, `seed` and `get_info` reach their environments."""
    crew = trial.crew()
    crew.run(range(4))
    crew.run([1])
    (echoed,) = crew.answer(2, "call", [3], [("echo", (), {"value": {"a": [1]}})])
    _look("call('echo')", {"a": [1]}, echoed)
    _look(
        "access('env_id')", (0, 1), crew.answer(0, "access", [0, 1], [("env_id",)] * 2)
    )
    pictures = crew.answer(0, "render", [0, 1], ["rgb_array"] * 2)
    _look("render()", [1, 2], [int(np.asarray(each)[0, 0, 2]) for each in pictures])
    infos = crew.answer(0, "get_info", [0, 1], [None] * 2)
    _look("get_info()", [1, 2], [int(info["step"]) for info in infos])
    crew.answer(1, "seed", [2], [77])
    crew.send([2], RESET)
    crew.await_rows([2])
    _look("seed()", 77, int(crew.answers[2].observation["seed"]))


def state(trial: BackendTrial) -> None:
    """`get_state` and `set_state` take an environment back to where it was."""
    crew = trial.crew()
    crew.run(range(4))
    (saved,) = crew.answer(1, "get_state", [2], [None])
    if not isinstance(saved, bytes):
        raise Broken(f"The answer to get_state is a {type(saved).__name__}, not bytes.")
    at = crew.answers[2]
    crew.run([2])
    crew.run([2])
    (done,) = crew.answer(1, "set_state", [2], [(saved, [False])])
    _look("set_state()", None, done)
    crew.answers[2] = at
    crew.run([2])


def replies(trial: BackendTrial) -> None:
    """A reply has the number of its request, and an answer for each environment."""
    crew = trial.crew()
    numbers = {
        crew.post(
            crew.worker_of(envs[0]), "access", envs, [("env_id",)] * len(envs)
        ): envs
        for envs in ([0, 1], [2], [3])
    }
    for number, envs in reversed(numbers.items()):
        _look(f"Request {number}", tuple(envs), crew.await_reply(number))
    _look("Envs 1 and 0", (1, 0), crew.answer(0, "access", [1, 0], [("env_id",)] * 2))
    crew.settle()
    wrong = {
        number: len(each) for number, each in crew.replies.items() if len(each) > 1
    }
    if wrong:
        raise Broken(f"Requests were answered more than once: {wrong}.")


def request_failures(trial: BackendTrial) -> None:
    """A request that raises in one environment is answered for the others."""
    crew = trial.crew()
    results = crew.answer(
        0, "call", [0, 1], [("give", ("error",), {}), ("give", ("number",), {})]
    )
    _look_at_failure(results[0], 0)
    _look("The call beside it", 1, results[1])
    (missing,) = crew.answer(1, "access", [2], [("no_such_thing",)])
    error = missing.original() if isinstance(missing, RemoteFailure) else missing
    if not isinstance(error, AttributeError):
        raise Broken(f"access() of what there is not was answered with {error!r}.")
    crew.run(range(4))


def _look_at_failure(failure: Any, env: int) -> None:
    if not isinstance(failure, RemoteFailure):
        raise broken(
            f"A method of env {env} raised.",
            "What was raised is the answer.",
            expected="a RemoteFailure",
            got=repr(failure)[:200],
        )
    error = failure.original()
    if failure.env != env or str(error) != f"env {env} was told to raise.":
        raise broken(
            f"A method of env {env} raised.",
            "Both are told as they were.",
            env=str(failure.env),
            exception=repr(error),
        )


def unsendable_results(trial: BackendTrial) -> None:
    """An answer that cannot travel fails alone, and says why."""
    crew = trial.crew()
    results = crew.answer(
        0, "call", [0, 1], [("give", ("lock",), {}), ("give", ("number",), {})]
    )
    _look("The call beside it", 1, results[1])
    if trial.is_apart and not isinstance(results[0], RemoteFailure):
        raise Broken(f"A lock arrived from another process: {results[0]!r:.100}.")
    crew.run(range(4))


def big_payload(trial: BackendTrial) -> None:
    """Twenty megabytes go there and back, and keep no other worker waiting."""
    crew = trial.crew()
    payload = np.random.default_rng(0).bytes(_BIG)
    number = crew.post(0, "call", [0], [("echo", (payload,), {})])
    crew.send([2, 3])
    (echoed,) = crew.await_reply(number)
    if not isinstance(echoed, bytes) or echoed != payload:
        raise Broken("Twenty megabytes came back as something else.")
    crew.await_rows([2, 3])
    crew.check_answers([2, 3])
    # Nothing needs them any more.
    crew.replies.clear()
    crew.events.clear()


def interleaved(trial: BackendTrial) -> None:
    """Requests are answered while rows of other workers are on their way."""
    crew = trial.crew()
    for _ in range(3):
        _ask_and_run(crew, may_wait=trial.is_aside)
    crew.settle()
    crew.run(range(4))


def _ask_and_run(crew: Crew, *, may_wait: bool) -> None:
    held = {3: crew.action(WAIT)} if may_wait else {}
    crew.send([3], STEP, held)
    first = crew.post(0, "access", [0, 1], [("env_id",)] * 2)
    crew.send([2])
    second = crew.post(0, "get_info", [1], [None])
    crew.await_reply(second)
    _look("access('env_id')", (0, 1), crew.await_reply(first))
    crew.await_rows([2])
    if may_wait:
        crew.let_go(3)
    crew.await_rows([3])
    crew.check_answers([2, 3])
