"""Lost episodes behind dm_env's interface, with and without its RPC protocol."""

from __future__ import annotations

import contextlib
import os

import pytest

from envkit import ParallelPyEnvironment, ProcessPyEnvironment
from envkit.adapters import PyToDMWrapper
from envkit.remote.offers import Menu, Offer, ServeOptions
from envkit.testing import chaos
from tests.lost.ledger import Ledger, episodes_to_play
from tests.lost.numbered import RAISING, NumberedEnv
from tests.lost.players import ENDLESS, FAULTS, OPTIONS

pytest.importorskip("dm_env", reason="dm_env is not installed")


def test_repaired_marks_every_lost_episode_of_an_environment():
    options = {key: OPTIONS[key] for key in OPTIONS if key != "num_workers"}
    process = ProcessPyEnvironment(NumberedEnv, **options)
    process.start()
    process.seed(RAISING)
    faults = {**FAULTS, "every_steps": 50}
    ledger = Ledger(1)
    with contextlib.closing(PyToDMWrapper(process)) as env, chaos(env, **faults):
        while ledger.resolved < episodes_to_play(60):
            take(ledger, env, env.step(ledger.actions[0]))
    ledger.close("crashed", "raised")


def test_repaired_marks_every_lost_episode_of_a_row():
    pool = ParallelPyEnvironment([NumberedEnv] * 2, **OPTIONS)
    pool.seed([RAISING, 1])
    ledger = Ledger(2)
    faults = {**FAULTS, "every_steps": 40}
    with contextlib.ExitStack() as stack:
        rows = PyToDMWrapper.rows(pool)
        for env in rows:
            stack.callback(env.close)
        stack.enter_context(chaos(rows[0], **faults))
        while ledger.resolved < episodes_to_play(60):
            for row, env in enumerate(rows):
                take(ledger, env, env.step(ledger.actions[row]), row)
    ledger.close("crashed", "raised")


def take(ledger, env, shown, row=0):
    if shown.first():
        ledger.begin(shown.observation, row)
    elif env.repaired:
        assert shown.last()
        (loss,) = env.current_losses().values()
        ledger.lose(loss.kind, row)
    else:
        ledger.step(shown.observation, shown.reward, row)
        if shown.last():
            ledger.end(row, is_terminated=shown.discount == 0)


def test_the_rpc_adaptor_raises_for_every_lost_episode(monkeypatch):
    pytest.importorskip("dm_env_rpc", reason="dm_env_rpc is not installed")
    import grpc
    from dm_env_rpc.v1 import connection, dm_env_adaptor, error

    from envkit.remote.dm_env_rpc import DmEnvRpcServer

    monkeypatch.setattr(Offer, "_policy", lambda offer: ENDLESS)
    offer = Offer("tests.lost.numbered:NumberedEnv", num_workers=1)
    ledger = Ledger(1)
    with contextlib.ExitStack() as stack:
        server = DmEnvRpcServer(Menu([offer]), ServeOptions(port=0, token=None))
        stack.callback(server.close)
        channel = stack.enter_context(grpc.insecure_channel(server.address))
        made = connection.Connection(channel)
        stack.callback(made.close)
        env = dm_env_adaptor.create_and_join_world(made, {"seed": RAISING}, {}).env
        trouble = stack.enter_context(chaos(os.getpid(), seed=1, every_steps=40))
        while ledger.resolved < episodes_to_play(60):
            try:
                if ledger.is_playing():
                    trouble.count_step()
                    shown = env.step({"action": ledger.actions[0]})
                else:
                    shown = env.reset()
            except error.DmEnvRpcError as refusal:
                if "lost" not in str(refusal):
                    raise
                if ledger.is_playing():
                    ledger.lose("told")
                continue
            if shown.first():
                ledger.begin(shown.observation["observation"])
            else:
                ledger.step(shown.observation["observation"], shown.reward)
                if shown.last():
                    ledger.end(is_terminated=shown.discount == 0)
        assert trouble.counts["kill"]
    ledger.close("told")
