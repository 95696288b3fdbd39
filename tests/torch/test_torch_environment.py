"""Environments of tensors: the same streams as of arrays, in memory that is shared."""

from __future__ import annotations

import functools
import warnings

import numpy as np
import pytest

import envkit
from envkit import (
    ArraySpec,
    AsyncParallelPyEnvironment,
    BatchedPyEnvironment,
    BoundedArraySpec,
    ParallelPyEnvironment,
    PyEnvironment,
    RestartPolicy,
    nest,
    restart,
    transition,
)
from envkit.errors import CallOrderError, SpecError
from envkit.testing import CountingEnv, CrashingEnv, NestedCountingEnv
from tests.torch.torch_games import devices

torch = pytest.importorskip("torch", reason="torch is not installed")

from envkit.torch import TorchEnvironment  # noqa: E402
from envkit.torch.transfer import block_of  # noqa: E402


class Recording(PyEnvironment):
    """Keeps the actions it was given; its action is a dictionary of three kinds."""

    def __init__(self):
        super().__init__()
        self.actions = []

    @property
    def batched(self):
        return True

    @property
    def batch_size(self):
        return 2

    def observation_spec(self):
        return ArraySpec((), np.float64)

    def action_spec(self):
        return {
            "whole": ArraySpec((), np.int32),
            "float": ArraySpec((2,), np.float64),
            "flag": ArraySpec((), np.bool_),
        }

    def _reset(self):
        return restart(np.zeros(2), batch_size=2)

    def _step(self, action):
        self.actions.append(action)
        return transition(np.zeros(2), np.zeros(2, np.float32))


class Other(PyEnvironment):
    """Has a part in its observation of which there are no tensors."""

    def __init__(self, dtype):
        super().__init__()
        self._dtype = dtype

    def observation_spec(self):
        return {"goal": ArraySpec((), self._dtype)}

    def action_spec(self):
        return ArraySpec((), np.int32)

    def _reset(self):
        raise NotImplementedError

    _step = _reset


def nested(count=3):
    return [lambda: NestedCountingEnv(steps_per_episode=3)] * count


def same(tensors, arrays):
    """Returns true if a nest of tensors equals one of arrays, in structure, too."""
    nest.assert_same_structure(tensors, arrays)
    pairs = zip(nest.flatten(tensors), nest.flatten(arrays), strict=True)
    return all(np.array_equal(tensor.cpu(), array) for tensor, array in pairs)


@pytest.mark.parametrize("device", devices())
@pytest.mark.parametrize("zero_copy", [False, True])
def test_tensors_and_arrays_of_a_pool_have_the_same_stream(device, zero_copy):
    def pool():
        return ParallelPyEnvironment(nested(), backend="inline", zero_copy=zero_copy)

    zeros = torch.zeros(3, dtype=torch.int64, device=device)
    with TorchEnvironment(pool(), device) as env, pool() as arrays:
        assert same(env.reset(), arrays.reset())
        for _ in range(8):
            time_step = env.step(zeros)
            assert same(time_step, arrays.step(np.zeros(3, np.int32)))
            assert {device} == {leaf.device.type for leaf in nest.flatten(time_step)}
        mask = torch.tensor([True, False, True], device=device)
        assert same(env.reset(mask), arrays.reset(mask.cpu().numpy()))
        assert same(env.step(zeros, mask), arrays.step([0] * 3, mask.cpu().numpy()))
        assert same(env.current_time_step(), arrays.current_time_step())


def test_a_pool_without_copies_makes_its_tensors_once():
    pool = ParallelPyEnvironment(nested(), backend="inline", zero_copy=True)
    with TorchEnvironment(pool) as env:
        env.reset()
        made = [env.step([0] * 3) for _ in range(6)]
        slot = pool.current_time_step().observation["total_steps"]
        now = made[-1].observation["total_steps"]
        assert now.data_ptr() == slot.ctypes.data

    for one, other in zip(made, made[2:], strict=False):
        pairs = zip(nest.flatten(one), nest.flatten(other), strict=True)
        assert all(first is second for first, second in pairs)


@pytest.mark.parametrize("backend", ["inline", "process"])
def test_the_memory_of_a_pool_without_copies_is_one_block(backend):
    """That is what is locked for a graphics card, once."""
    with ParallelPyEnvironment(
        nested(), backend=backend, num_workers=1, zero_copy=True
    ) as pool:
        arrays = nest.flatten([pool.reset(), pool.step([0] * 3)])
        blocks = {block_of(array) for array in arrays}
        (address, size) = blocks.pop()
        assert not blocks
        for array in arrays:
            assert address <= array.ctypes.data
            assert array.ctypes.data + array.nbytes <= address + size


def test_the_callers_arrays_are_not_copied():
    env = TorchEnvironment(envkit.make("CartPole", batch_size=2, seed=1))
    env.reset()
    arrays = env.pyenv.step(np.zeros(2, np.int64))
    tensors = env.tensors(arrays)

    assert tensors.observation.data_ptr() == arrays.observation.ctypes.data


class OneArray(PyEnvironment):
    """Shows one read-only array again and again, with other numbers in it."""

    def __init__(self):
        super().__init__()
        self._shown = np.zeros((2, 3), np.float32)

    @property
    def batched(self):
        return True

    @property
    def batch_size(self):
        return 2

    def observation_spec(self):
        return ArraySpec((3,), np.float32)

    def action_spec(self):
        return BoundedArraySpec((), np.int64, 0, 1)

    def _reset(self):
        return restart(self._show(0.0), batch_size=2)

    def _step(self, action):
        ones = np.ones(2, np.float32)
        return transition(self._show(self._shown[0, 0] + 1), ones, discount=ones)

    def _show(self, number):
        self._shown.flags.writeable = True
        self._shown[:] = number
        self._shown.flags.writeable = False
        return self._shown


def test_a_changed_array_shows_its_new_values():
    env = TorchEnvironment(OneArray())
    env.reset()
    shown = [env.step([0, 1]).observation[0, 0].item() for _ in range(4)]

    assert [1.0, 2.0, 3.0, 4.0] == shown


def test_read_only_memory_causes_no_warning():
    with (
        warnings.catch_warnings(),
        TorchEnvironment(
            ParallelPyEnvironment(nested(), backend="inline", zero_copy=True)
        ) as env,
    ):
        warnings.simplefilter("error")
        assert bool(env.reset().is_first().all())
        assert not env.step([0] * 3).is_last().any()


def test_a_single_environment_is_a_batch_of_one():
    with TorchEnvironment(lambda: CountingEnv(steps_per_episode=2)) as env:
        assert (1, True) == (env.batch_size, env.is_single)
        steps = [env.step([0]) for _ in range(4)]

    assert [0, 1, 2, 0] == [int(time_step.step_type[0]) for time_step in steps]


def test_a_name_or_a_constructor_makes_an_environment():
    with TorchEnvironment("Catch") as env:
        assert "Catch-v1" == env.provenance()["environments"][0]["id"]
    with TorchEnvironment(CountingEnv) as env:
        assert env.current_time_step().is_first().all()


def test_dtypes_are_chosen_once():
    recording = Recording()
    with TorchEnvironment(recording, dtypes={np.float64: torch.float16}) as env:
        time_step = env.reset()

    assert torch.float16 == time_step.observation.dtype
    assert torch.float32 == time_step.reward.dtype


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a graphics card")
def test_a_missing_gpu_is_explained():
    with pytest.raises(
        ValueError, match=r"got 'cuda:1', and it finds no graphics card"
    ):
        TorchEnvironment("Catch", device="cuda:1")


def test_tensors_can_be_on_devices_other_than_gpus():
    with TorchEnvironment("Catch", device="meta") as env:
        observation = env.reset().observation

    assert ("meta", (1, 10, 5)) == (observation.device.type, tuple(observation.shape))


@pytest.mark.parametrize("device", devices())
def test_actions_may_be_tensors_of_any_kind(device):
    recording = Recording()
    weight = torch.ones(2, 2, requires_grad=True, device=device)
    with TorchEnvironment(recording) as env:
        env.reset()
        env.step(
            {
                "whole": torch.tensor([3, 4], device=device),
                "float": 0.5 * weight,
                "flag": torch.tensor([True, False], device=device),
            }
        )
        env.step(
            {
                "whole": [5, 6],
                "float": weight.detach().to(torch.bfloat16),
                "flag": np.array([False, True]),
            }
        )

    first, second = recording.actions
    assert [3, 4] == first["whole"].tolist()
    assert [5, 6] == second["whole"].tolist()
    assert [[0.5, 0.5]] * 2 == first["float"].tolist()
    assert [[1.0, 1.0]] * 2 == second["float"].tolist()
    assert [False, True] == second["flag"].tolist()
    for action in recording.actions:
        kinds = {name: array.dtype.name for name, array in action.items()}
        assert {"whole": "int32", "float": "float64", "flag": "bool"} == kinds


def test_integers_out_of_range_reach_the_environment_unchanged():
    recording = Recording()
    with TorchEnvironment(recording) as env:
        env.reset()
        env.step({"whole": torch.tensor([2**40, 1]), "float": 0, "flag": 0})

    assert [2**40, 1] == recording.actions[0]["whole"].tolist()


@pytest.mark.parametrize("device", devices())
def test_rows_step_at_their_own_pace(device):
    pool = AsyncParallelPyEnvironment(nested(), backend="inline")
    with TorchEnvironment(pool, device) as env:
        assert (3, True) == (env.batch_size, env.is_async)
        env.reset_async()
        first = env.recv(2)
        assert (2,) == tuple(first.time_step.reward.shape)
        env.send(torch.zeros(2, dtype=torch.int64, device=device), first.env_ids)
        env_ids, time_step = env.recv()

    assert [0, 1, 2] == sorted(env_ids.tolist())
    rows = dict(zip(env_ids.tolist(), time_step.step_type.tolist(), strict=True))
    assert [1, 1, 0] == [rows[env] for env in (*first.env_ids.tolist(), 2)]


def test_the_attributes_of_the_environment_are_available():
    with TorchEnvironment(ParallelPyEnvironment(nested(), backend="inline")) as env:
        assert [{}] * 3 == env.call("get_info")
        env.autoreset = "disabled"
        assert envkit.AutoReset.DISABLED is env.pyenv.autoreset is env.autoreset
        assert env.action_spec() == env.pyenv.action_spec()
        with pytest.raises(AttributeError):
            _ = env.no_such_attribute


def test_repaired_is_a_tensor():
    make = functools.partial(CrashingEnv, crash_at=1, how="exit")
    pool = ParallelPyEnvironment(
        [make, CountingEnv], num_workers=2, on_worker_failure=RestartPolicy(backoff=0)
    )
    with TorchEnvironment(pool) as env:
        env.reset()
        time_step = env.step(torch.zeros(2).int())
        assert torch.equal(env.repaired, time_step.is_last())
        assert [loss.kind for loss in env.losses()] == ["crashed"]


def test_an_environment_that_breaks_its_spec_is_named(message_of):
    class Shrinking(Recording):
        def _step(self, action):
            return transition(np.zeros((2, 3)), np.zeros(2, np.float32))

    env = TorchEnvironment(Shrinking())
    env.reset()
    action = {"whole": [0, 0], "float": [[0.0, 0.0]] * 2, "flag": [0, 0]}
    message = message_of(SpecError, lambda: env.step(action))

    assert message.startswith(
        "Shrinking._step() returned a time step that does not fit its spec at "
        "observation.\n"
    )


MISUSES = {
    "no environment": (
        TypeError,
        lambda: TorchEnvironment(3),
        "TorchEnvironment must be given an environment, or something to call that "
        "makes one, got 3 of type int.",
    ),
    "text": (
        SpecError,
        lambda: TorchEnvironment(Other("U9")),
        "PyTorch has no tensors for the leaf at observation['goal'], which is "
        "ArraySpec(shape=(), dtype=<U9). Leave it out, or turn it into numbers, with a "
        "wrapper of envkit.wrappers such as SelectObservation or "
        "TransformObservation.",
    ),
    "dtypes that are no dictionary": (
        TypeError,
        lambda: TorchEnvironment(CountingEnv, dtypes=torch.float32),
        "dtypes must be a dictionary of NumPy's dtypes and PyTorch's, such as "
        "{np.float64: torch.float32}, got a dtype object.",
    ),
    "dtypes of NumPy alone": (
        TypeError,
        lambda: TorchEnvironment(CountingEnv, dtypes={"float64": np.float32}),
        "dtypes must be a dictionary of NumPy's dtypes and PyTorch's, such as "
        "{np.float64: torch.float32}, got <class 'numpy.float32'> for 'float64'.",
    ),
    "a step out of lockstep": (
        CallOrderError,
        lambda: TorchEnvironment(asynchronous()).step([0]),
        "TorchEnvironment.step() needs an environment in lockstep, and "
        "AsyncParallelPyEnvironment is asynchronous: call reset_async(), send() and "
        "recv(), or wrap it in envkit.Blocking first.",
    ),
    "recv in lockstep": (
        CallOrderError,
        lambda: TorchEnvironment(CountingEnv).recv(),
        "TorchEnvironment.recv() needs an asynchronous environment, such as an "
        "AsyncParallelPyEnvironment, and BatchedPyEnvironment is in lockstep: call "
        "reset() and step().",
    ),
    "another structure": (
        SpecError,
        lambda: TorchEnvironment(nested_batch()).step([torch.zeros(2)]),
        "TorchEnvironment.step() was given an action that does not fit its spec.\n\n"
        "  expected   the structure {'foo': *, 'bar': *}\n"
        "  got        a list of 1 element\n\n"
        "The value is a list; a dictionary is expected.",
    ),
}


def asynchronous():
    pool = AsyncParallelPyEnvironment([CountingEnv], backend="inline")
    pool.close()
    return pool


def nested_batch():
    return BatchedPyEnvironment([NestedCountingEnv(nested_action=True)] * 1)


@pytest.mark.parametrize("case", MISUSES)
def test_a_misuse_is_named(case, message_of):
    kind, call, expected = MISUSES[case]
    assert expected == message_of(kind, call)


def test_close_closes_the_environment():
    env = TorchEnvironment(ParallelPyEnvironment([CountingEnv], backend="inline"))
    env.close()
    env.close()

    with pytest.raises(envkit.errors.ClosedError):
        env.step([0])
