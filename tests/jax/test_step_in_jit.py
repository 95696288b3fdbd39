"""Environments in compiled programs: the same streams, errors and refusals."""

from __future__ import annotations

import functools

import attrs
import numpy as np
import pytest

pytest.importorskip("jax", reason="jax is not installed")

import jax
import jax.numpy as jnp

import envkit
from envkit import (
    ArraySpec,
    AsyncParallelPyEnvironment,
    BatchedPyEnvironment,
    ParallelPyEnvironment,
    PyEnvironment,
    RestartPolicy,
    nest,
    restart,
    transition,
)
from envkit.errors import SpecError
from envkit.jax import JitEnvironment, step_in_jit
from envkit.testing import CountingEnv, CrashingEnv, NestedCountingEnv
from envkit.wrappers import TimeLimit

# What JAX has to compile takes its time.
pytestmark = pytest.mark.slow

STEPS = 1000


class Given(PyEnvironment):
    """A batch of two that observes one given value, and keeps its actions."""

    def __init__(self, value, spec, action=None):
        super().__init__()
        self._value, self._spec, self.actions = value, spec, []
        self._action = ArraySpec((), np.int32) if action is None else action

    @property
    def batched(self):
        return True

    @property
    def batch_size(self):
        return 2

    def observation_spec(self):
        return self._spec

    def action_spec(self):
        return self._action

    def _reset(self):
        return restart(self._value, batch_size=2)

    def _step(self, action):
        self.actions.append(action)
        return transition(self._value, np.ones(2, np.float32))


def cart_pole():
    return TimeLimit(envkit.make("CartPole"), 40)


def cart_poles(seed=3):
    return envkit.make("CartPole", batch_size=4, seed=seed)


def pool(make, **options):
    return ParallelPyEnvironment([make] * 4, num_workers=2, **options)


ENVIRONMENTS = {
    "batch": cart_poles,
    "single environment": cart_pole,
    "process pool": lambda: pool(cart_pole),
    "process pool, zero copy": lambda: pool(cart_pole, zero_copy=True),
    "thread pool": lambda: pool(cart_pole, backend="thread"),
}


def choice(time_step):
    """A policy that computes the same in NumPy and in JAX."""
    return (time_step.observation[..., 2] > 0.0) ^ (time_step.observation[..., 3] > 0.3)


def rolled(env, steps, policy):
    """Returns a function that plays in one compiled scan."""

    def act(time_step, _):
        return env.step(policy(time_step)), time_step

    return lambda: jax.lax.scan(act, env.reset(), length=steps)


def assert_same(expected, came):
    expected, came = jax.tree.leaves(expected), jax.tree.leaves(came)
    assert len(expected) == len(came)
    for ours, theirs in zip(expected, came, strict=True):
        assert ours.dtype == theirs.dtype
        np.testing.assert_array_equal(np.asarray(ours), np.asarray(theirs))


@pytest.mark.parametrize("make", ENVIRONMENTS.values(), ids=ENVIRONMENTS)
def test_a_compiled_scan_equals_the_loop_bit_for_bit(make):
    with make() as plain, step_in_jit(make()) as env:
        plain.seed(7), env.pyenv.seed(7)

        def policy(time_step):
            return choice(time_step).astype(jnp.int32)

        last, stream = env.jit(rolled(env, STEPS, policy))()
        time_step = plain.reset()
        ends = 0
        for number in range(STEPS):
            of_scan = jax.tree.map(lambda leaf, at=number: leaf[at], stream)
            assert_same(time_step, of_scan)
            ends += int(np.sum(time_step.is_last()))
            time_step = plain.step(np.asarray(choice(time_step), np.int32))
        assert_same(time_step, last)
        assert 10 < ends


def test_outside_of_jit_it_returns_the_same():
    with cart_poles() as plain, step_in_jit(cart_poles()) as env:
        assert_same(plain.reset(), env.reset())
        for action in np.random.default_rng(1).integers(0, 2, (60, 4), np.int32):
            came = env.step(action)
            assert_same(plain.step(action), came)
            assert isinstance(came.reward, jax.Array)
        assert_same(plain.current_time_step(), env.current_time_step())
        assert_same(plain.step([0, 1, 0, 1]), env.step([0, 1, 0, 1]))


def test_jax_loops_and_branches_step_the_environment():
    env = step_in_jit(BatchedPyEnvironment([CountingEnv(50)]))

    @jax.jit
    def until(goal):
        def go_on(time_step):
            return time_step.observation[0] < goal

        def act(time_step):
            return jax.lax.cond(
                time_step.observation[0] == 3,
                env.current_time_step,
                lambda: time_step,
            )

        return jax.lax.while_loop(
            go_on, lambda it: env.step(jnp.zeros_like(act(it).step_type)), env.reset()
        )

    assert [7] == until(7).observation.tolist()
    assert [7] == env.pyenv.current_time_step().observation.tolist()


def test_nests_of_observations_and_actions_keep_their_structure():
    makers = [functools.partial(NestedCountingEnv, 5, nested_action=True)] * 3
    action = {"foo": jnp.zeros(3, jnp.int32), "bar": [0, 1, 0]}
    with ParallelPyEnvironment(makers, backend="inline") as pyenv:
        env = step_in_jit(pyenv)
        _, stream = env.jit(rolled(env, 12, lambda _: action))()
        assert {"current_steps", "total_steps"} == set(stream.observation)
        steps = stream.observation["current_steps"][:, 0].tolist()
        assert [0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5] == steps
        assert [0, 1, 1, 1, 1, 2, 0] == stream.step_type[:7, 2].tolist()


@pytest.mark.parametrize("order", ["next_step", "same_step"])
def test_episodes_begin_in_the_order_of_the_environment(order):
    env = step_in_jit(BatchedPyEnvironment([CountingEnv(2), CountingEnv(3)]))
    env.pyenv.autoreset = order

    def act(_, action):
        came = env.step(jnp.full(2, action))
        return None, (came, env.current_time_step())

    env.reset()
    _, (came, stands) = env.jit(lambda: jax.lax.scan(act, None, jnp.zeros(4, int)))()
    first = {"next_step": [1, 2, 10, 11], "same_step": [1, 2, 11, 12]}
    assert first[order] == came.observation[:, 0].tolist()
    now = {"next_step": [1, 2, 10, 11], "same_step": [1, 10, 11, 20]}
    assert now[order] == stands.observation[:, 0].tolist()


def test_a_mask_steps_and_resets_some_rows():
    with pool(CountingEnv) as pyenv:
        env = step_in_jit(pyenv)

        @jax.jit
        def program(mask):
            env.reset()
            env.step(jnp.zeros(4, jnp.int32))
            held = env.step(jnp.zeros(4, jnp.int32), mask)
            return held, env.reset(mask)

        held, begun = program(np.array([True, False, True, False]))
        assert [2, 1, 2, 1] == held.observation.tolist()
        assert [0, 1, 0, 1] == begun.observation.tolist()


def test_a_mask_must_be_one_boolean_for_each_row(message_of):
    env = step_in_jit(BatchedPyEnvironment([CountingEnv(), CountingEnv()]))
    assert (
        "The mask of JitEnvironment.reset() must be an array of 2 booleans, got bool "
        "of shape (3,)."
    ) == message_of(ValueError, lambda: env.reset(np.ones(3, bool)))
    assert (
        "JitEnvironment.step() was given a mask, and CountingEnv is a single "
        "environment, which has no rows. Leave the mask out."
    ) == message_of(
        ValueError, lambda: step_in_jit(CountingEnv()).step(0, np.array(True))
    )


# Errors.


@pytest.mark.parametrize("backend", [None, "process"])
def test_errors_of_the_environment_are_raised_by_the_program(backend):
    maker = functools.partial(CrashingEnv, crash_at=4)

    def made():
        if backend is None:
            return CrashingEnv(crash_at=4)
        return ParallelPyEnvironment([maker], backend=backend)

    def error_of(call):
        with pytest.raises(Exception, match="told to raise in step 4") as caught:
            call()
        return caught.value

    def play_outside(env):
        env.reset()
        for _ in range(9):
            env.step(np.zeros(env.batch_size if env.batched else (), np.int32))

    with made() as plain, made() as inside, made() as alone:
        due = error_of(lambda: play_outside(plain))
        jitted = step_in_jit(inside)
        zero = np.zeros(() if backend is None else 1, np.int32)
        came = error_of(jitted.jit(rolled(jitted, 9, lambda _: zero)))
        eager = error_of(lambda: play_outside(step_in_jit(alone)))
    assert (type(due), str(due)) == (type(came), str(came))
    assert (type(due), str(due)) == (type(eager), str(eager))
    assert type(due.__cause__) is type(came.__cause__)


def test_the_environment_continues_after_an_error():
    env = step_in_jit(CrashingEnv(crash_at=2))
    play = env.jit(rolled(env, 3, lambda _: 0))
    with pytest.raises(RuntimeError, match="told to raise in step 2"):
        play()
    _, stream = play()
    assert [0, 1, 2] == stream.observation.tolist()


def test_jaxs_own_jit_raises_the_errors_text():
    env = step_in_jit(CrashingEnv(crash_at=2))
    with pytest.raises(Exception, match="told to raise in step 2"):
        jax.block_until_ready(jax.jit(rolled(env, 3, lambda _: 0))())


def test_ctrl_c_ends_a_program():
    class Interrupted(CountingEnv):
        def _step(self, action):
            raise KeyboardInterrupt

    env = step_in_jit(Interrupted())
    with pytest.raises(KeyboardInterrupt):
        env.jit(rolled(env, 3, lambda _: 0))()


def test_errors_of_the_program_are_unchanged():
    env = step_in_jit(CountingEnv())

    def refuse():
        env.reset()
        raise RuntimeError("of the program")

    with pytest.raises(RuntimeError, match=r"^of the program"):
        env.jit(refuse)()


def test_options_of_jit_reach_jax():
    env = step_in_jit(CountingEnv(50))

    @functools.partial(env.jit, static_argnames="steps")
    def play(steps):
        return rolled(env, steps, lambda _: 0)()

    assert 3 == play(steps=3)[0].observation
    assert "play" == play.__name__


@pytest.mark.parametrize("program", [lambda f: f, jax.jit])
def test_vmap_is_refused(program, message_of):
    env = step_in_jit(CountingEnv())
    env.reset()
    assert (
        "An environment cannot be stepped in jax.vmap: it is one environment, and 3 "
        "steps of it at once would need as many. Make a batch of 3 rows, and step it "
        "with one action for each row."
    ) == message_of(
        TypeError, lambda: program(jax.vmap(program(env.step)))(jnp.zeros(3, int))
    )
    assert 0 == env.pyenv.current_time_step().observation


def test_gradients_treat_actions_as_constants():
    spec = ArraySpec((), np.float32)
    env = step_in_jit(Given(np.full(2, 3, np.float32), spec, spec))

    def loss(weight):
        def act(time_step, _):
            action = weight * time_step.observation
            came = env.step(action)
            return came, (came.reward * action).sum()

        return jax.lax.scan(act, env.reset(), length=5)[1].sum()

    # Each of five steps of two rows has a reward of 1, and an observation of 3.
    assert 30.0 == jax.jit(jax.grad(loss))(0.5)


# What JAX cannot have.


def test_float64_is_refused_or_cast_as_requested(message_of):
    made = Given(np.full(2, 0.1), ArraySpec((), np.float64))
    assert (
        "JAX has no arrays of float64 as it is configured, and Given returns one at "
        "observation. Ask for another with step_in_jit(env, "
        "dtypes={np.float64: np.float32}), or allow 64 bits at the beginning of the "
        'program: jax.config.update("jax_enable_x64", True).'
    ) == message_of(SpecError, lambda: step_in_jit(made))
    came = step_in_jit(made, dtypes={np.float64: np.float32}).reset()
    assert_same(np.full(2, 0.1, np.float32), came.observation)


def test_integers_that_do_not_fit_are_refused(message_of):
    made = Given(np.array([7, 2**40]), ArraySpec((), np.int64))
    env = step_in_jit(made, {"int64": "int32"})
    assert (
        "Given.reset() returned 1099511627776 at observation, which int32 cannot "
        "hold. Choose a larger one for int64 in the dtypes of step_in_jit()."
    ) == message_of(SpecError, env.reset)


def test_with_64_bits_enabled_nothing_is_lost():
    jax.config.update("jax_enable_x64", True)
    try:
        value = np.array([0.1, 1e300])
        env = step_in_jit(Given(value, ArraySpec((), np.float64)))
        assert_same(value, env.jit(env.reset)().observation)
    finally:
        jax.config.update("jax_enable_x64", False)


def test_text_is_refused(message_of):
    made = Given(np.array(["a", "b"]), ArraySpec((), "U1"))
    assert (
        "JAX has no arrays of <U1, which Given returns at observation. Convert it with "
        "a wrapper, or leave it out with one."
    ) == message_of(SpecError, lambda: step_in_jit(made))


@attrs.define
class Seen:
    """A container that JAX does not know."""

    count: object


def test_a_container_that_jax_treats_as_a_leaf_is_refused(message_of):
    made = Given(Seen(np.zeros(2)), Seen(ArraySpec((), np.float32)))
    assert (
        "observation.count of the time steps of Given is in a container that JAX "
        "does not know: Seen. Register the class with "
        "jax.tree_util.register_pytree_node, or use dictionaries, lists and tuples."
    ) == message_of(SpecError, lambda: step_in_jit(made))


def test_dtypes_must_be_dtypes(message_of):
    must = (
        "dtypes must be a dictionary of NumPy's dtypes and others, such as "
        "{np.float64: np.float32}, got"
    )
    for given in ["float32", {"no such dtype": "int8"}, {"int8": "no such dtype"}]:
        message = message_of(TypeError, lambda it=given: step_in_jit(CountingEnv(), it))
        assert message.startswith(must)


def test_anything_but_a_lockstep_environment_is_refused(message_of):
    with AsyncParallelPyEnvironment([CountingEnv], backend="thread") as pyenv:
        assert (
            "step_in_jit() must be given an environment in lockstep, and "
            "AsyncParallelPyEnvironment is asynchronous: wrap it in envkit.Blocking "
            "first."
        ) == message_of(TypeError, lambda: step_in_jit(pyenv))
        env = step_in_jit(envkit.Blocking(pyenv))
        assert [0] == env.reset().observation.tolist()
    with pytest.raises(TypeError, match=r"^step_in_jit\(\) must be given an environ"):
        step_in_jit(CountingEnv)


# Actions.


@pytest.mark.parametrize(
    ("action", "shown"),
    [
        (jnp.zeros(3, jnp.int32), "int32 of shape (3,)\n\nThe shape is another one."),
        (jnp.zeros(2), "float32 of shape (2,)\n\nThe dtype is another one."),
    ],
)
def test_an_action_that_does_not_fit_is_refused_before_anything_steps(
    action, shown, message_of
):
    made = Given(np.zeros(2, np.float32), ArraySpec((), np.float32))
    env = step_in_jit(made)
    assert (
        "JitEnvironment.step() was given an action that does not fit its spec.\n\n"
        "  expected   ArraySpec(shape=(2,), dtype=int32)\n"
        f"  got        {shown}"
    ) == message_of(SpecError, lambda: jax.jit(env.step)(action))
    assert [] == made.actions


@pytest.mark.parametrize(
    ("spec", "action"),
    [
        (np.int64, jnp.array([1, 2], jnp.int32)),
        (np.float64, jnp.array([1, 2], jnp.bfloat16)),
        (np.bool_, jnp.array([True, False])),
        (np.float32, jnp.array([1, 2], jnp.float32)),
    ],
)
def test_actions_are_copied_into_the_dtype_of_the_spec(spec, action):
    value = np.zeros(2, np.float32)
    made = Given(value, ArraySpec((), np.float32), ArraySpec((), spec))
    env = step_in_jit(made)
    env.jit(lambda: [env.reset(), env.step(action), env.step(action)])()
    env.step(action)
    assert_same([np.asarray(action).astype(spec)] * 3, made.actions)
    assert all(given.flags.writeable for given in made.actions)
    made.actions[0][:] = 0
    assert_same([np.asarray(action).astype(spec)] * 2, made.actions[1:])


def test_a_time_step_that_does_not_fit_is_named(message_of):
    env = step_in_jit(Given(np.zeros(3, np.float32), ArraySpec((), np.float32)))
    assert message_of(SpecError, env.jit(env.reset)).startswith(
        "Given.reset() returned a time step that does not fit its spec at "
        "observation.\n\n"
    )


def test_losses_are_told_inside_a_scan():
    pool = ParallelPyEnvironment(
        [functools.partial(CrashingEnv, crash_at=3, how="exit"), CountingEnv],
        num_workers=2,
        on_worker_failure=RestartPolicy(max_restarts=99, backoff=0),
    )
    with step_in_jit(pool) as env:

        def act(time_step, _):
            now = env.step(jnp.zeros(2, jnp.int32))
            told = env.repaired, env.valid
            moved = now.observation - time_step.observation
            return now, (now.step_type, moved, *told)

        @env.jit
        def play():
            return jax.lax.scan(act, env.reset(), length=9)

        _, (step_type, moved, repaired, valid) = play()
        assert [False] * 2 == np.asarray(env.repaired).tolist()
        assert ["crashed"] * 2 == [loss.kind for loss in env.losses()]
    assert [2, 6] == np.flatnonzero(repaired[:, 0]).tolist()
    assert not repaired[:, 1].any()
    assert (step_type[:, 0] == 2).tolist() == repaired[:, 0].tolist()
    assert (~valid).tolist() == repaired.tolist()
    # A lost environment has counted nothing.
    assert [0, 0] == moved[repaired].tolist()
    assert valid[:, 1].all()


def test_the_masks_of_a_single_environment_have_no_dimensions():
    with step_in_jit(CountingEnv()) as env:
        env.reset()
        assert () == env.repaired.shape == env.valid.shape
        assert bool(env.valid)


def test_other_attributes_come_from_the_environment():
    with step_in_jit(BatchedPyEnvironment([CountingEnv(), CountingEnv()])) as env:
        assert isinstance(env, JitEnvironment)
        assert 2 == env.batch_size
        assert nest.flatten(env.action_spec()) == [env.pyenv.action_spec()]
        assert f"JitEnvironment({env.pyenv!r})" == repr(env)
        with pytest.raises(AttributeError, match="'JitEnvironment' object has no"):
            _ = env._private
