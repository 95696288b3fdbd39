"""Collects a policy's experience over some steps of all rows: `RolloutBuffer`.

```
place        0       1       2  …   steps
standing     t0 --a--> t1 --a--> t2  …   t    where rows act: (steps + 1, rows)
transition       0       1       2  …        the results:        (steps, rows)
```

Under `AutoReset.NEXT_STEP`, rows stay at the result of the step, and the transition
from a `LAST` to the next `FIRST` is invalid. Under the other two orders, a row whose
episode ends is at once at the `FIRST` of the next one. Its final observation is stored
separately, with the policy's value of it, because that is the value after a truncation.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from envkit import nest
from envkit._shared.arguments import as_discount
from envkit.errors import CallOrderError, SpecError, SpecMismatchError
from envkit.extend import checked_size, counted, describe, flatten_as, listed
from envkit.time_step import AutoReset, StepType, TimeStep
from envkit.torch.returns import generalized_advantages, n_step_returns
from envkit.torch.torch_environment import TorchEnvironment
from envkit.torch.transitions import Transitions
from envkit.types import Array, NestedArray

__all__ = ["RolloutBuffer"]

Policy = Callable[..., Any]

_FIRST, _LAST = int(StepType.FIRST), int(StepType.LAST)
_VALUE = "value"


class _Finals(NamedTuple):
    """Holds the ends of episodes whose rows are already at the next beginning."""

    transitions: Any
    rows: Any
    observation: NestedArray
    value: torch.Tensor | None


class RolloutBuffer:
    """Collects a number of steps of every row, with the result of each action.

    The policy is called with a time step of tensors, without gradients. It returns
    actions, or actions and a dictionary of tensors with one element per row, such as
    `{"value": ...}`, which are stored with them.

    Example:
        >>> import envkit
        >>> env = TorchEnvironment(envkit.make("CartPole", batch_size=4, seed=1))
        >>> buffer = RolloutBuffer(env, steps=32)
        >>> def policy(time_step):
        ...     value = torch.ones(4)
        ...     return (time_step.observation[:, 3] > 0).long(), {"value": value}
        >>> for time_step in buffer.collect(env, policy):
        ...     if time_step.is_last().any():
        ...         print("An episode is over.")
        >>> transitions = buffer.transitions(discount=0.99, lam=0.95)
        >>> transitions.observation.shape, transitions.advantages.shape
        (torch.Size([32, 4, 4]), torch.Size([32, 4]))
        >>> env.close()
    """

    def __init__(self, env: TorchEnvironment, steps: int) -> None:
        """Makes the tensors, on the environment's device.

        Args:
            env: The environment to collect from, or one like it.
            steps: How many steps to collect per row.
        """
        if not isinstance(env, TorchEnvironment):
            raise TypeError(
                f"RolloutBuffer must be given a TorchEnvironment, got {describe(env)}."
            )
        self.steps = checked_size("steps", steps)
        self.rows = env.batch_size
        self.device = env.device
        self._spec = nest.flatten(env.time_step_spec())
        self._structure = nest.Structure(env.time_step_spec())
        self._action = nest.Structure(env.action_spec())
        self._standing = self._structure.flatten(env.empty(self.steps + 1, self.rows))
        # By place: the policy's input.
        self._given = [
            self._structure.unflatten([leaf[place] for leaf in self._standing])
            for place in range(self.steps + 1)
        ]
        shown = env.empty(self.steps, self.rows)
        self._reward, self._discount = shown.reward, shown.discount
        # By place: views to write at each step, made once.
        self._stand_at = [self._structure.flatten(given) for given in self._given]
        self._earned = nest.flatten((self._reward, self._discount))
        self._earned_at = _by_place(self._earned, self.steps)
        self._kept_at: list[list[torch.Tensor]] = []
        # The facts that decide about episodes, on the CPU.
        self._continues = False
        self._acted_at = np.zeros((self.steps + 1, self.rows), np.int32)
        self._is_last = np.zeros((self.steps, self.rows), bool)
        self._is_new = np.zeros((self.steps, self.rows), bool)
        self._actions: list[torch.Tensor] = []
        self._extras: dict[str, torch.Tensor] = {}
        self._finals: list[_Finals] = []
        # Whether there is a complete rollout, and its facts.
        self._is_full = self._has_acted = False
        self._source: Any = None

    # Collecting.

    def collect(
        self, env: TorchEnvironment, policy: Policy, *, count: int | None = None
    ) -> Sequence[TimeStep]:
        """Steps the environment with a policy, from its current time step.

        In an asynchronous environment, rows step at their own pace until each has made
        all steps. The policy is then called as `policy(time_step, env_ids)` with the
        rows that are ready.

        Args:
            env: The environment.
            policy: Called with each time step; again with the last one if it
                returns values; and under orders other than `AutoReset.NEXT_STEP`, also
                with the last time steps of truncated episodes.
            count: For an asynchronous environment, how many rows to wait for at a time;
                `None` for half of them.

        Returns:
            The resulting time steps, which share the buffer's memory.
        """
        self._check_like(env)
        self._continues = _continues(env)
        self._is_full = self._has_acted = False
        self._finals = []
        # Learners use these tensors, even if they are collected in inference mode.
        with torch.inference_mode(False), torch.no_grad():
            if env.is_async:
                self._collect_async(env, policy, count)
            elif count is None:
                self._collect_in_lockstep(env, policy)
            else:
                raise ValueError(
                    "count must be None for an environment in lockstep, whose rows "
                    f"are ready all together, got {count!r}."
                )
            if _VALUE in self._extras:
                self._value_the_last(env, policy)
        self._is_full, self._source = True, env.pyenv
        return _Shown(self)

    def _check_like(self, env: Any) -> None:
        if not isinstance(env, TorchEnvironment):
            raise TypeError(
                f"collect() must be given a TorchEnvironment, got {describe(env)}."
            )
        if (env.batch_size, env.device) != (self.rows, self.device):
            given, own = counted(env.batch_size, "row"), counted(self.rows, "row")
            raise ValueError(
                f"collect() was given an environment of {given} on {env.device}; the "
                f"buffer was made for {own} on {self.device}."
            )
        if nest.flatten(env.time_step_spec()) != self._spec:
            raise SpecMismatchError(
                "collect() was given an environment whose time steps have other specs "
                "than the one for which the buffer was made. Make a buffer for it."
            )

    def _collect_in_lockstep(self, env: TorchEnvironment, policy: Policy) -> None:
        pyenv, order = env.pyenv, _order_of(env)
        standing = env.current_time_step()
        if order is AutoReset.DISABLED:
            over = _as_numpy(standing.is_last())
            standing = env.reset(over) if over.any() else standing
        self._stand(0, standing, _as_numpy(standing.step_type))
        for place in range(self.steps):
            action = self._act(policy, place, (self._given[place],))
            arrays = pyenv.step(env.arrays(action))
            shown = env.tensors(arrays)
            step_types = np.asarray(arrays.step_type)
            is_new = _is_new(pyenv)
            self._show(place, shown, step_types, is_new)
            if order is not AutoReset.NEXT_STEP:
                is_last = step_types == _LAST
                # A new episode follows a made-up end too, and none follows padding.
                over = is_last & (is_new | _is_repaired(pyenv))
                if over.any():
                    self._keep_finals(place, over.nonzero()[0], shown, policy, ())
                    if order is AutoReset.DISABLED:
                        shown = env.reset(is_last)
                    else:
                        shown = env.current_time_step()
                    step_types = _as_numpy(shown.step_type)
            self._stand(place + 1, shown, step_types)

    def _collect_async(
        self, env: TorchEnvironment, policy: Policy, count: int | None
    ) -> None:
        pyenv, order = env.pyenv, _order_of(env)
        half = -(-self.rows // 2)
        at_a_time = half if count is None else checked_size("count", count)
        everyone = np.arange(self.rows)
        self._begin_async(env)
        # How many steps each row has made, and which rows are resetting.
        made = np.zeros(self.rows, np.int64)
        resetting = np.zeros(self.rows, bool)
        self._send(env, policy, made, everyone)
        owing = self.rows
        while owing:
            rows, arrays = pyenv.recv(min(at_a_time, owing))
            rows = np.asarray(rows)
            owing -= len(rows)
            shown = env.tensors(arrays)
            step_types = np.asarray(arrays.step_type)
            stepped = ~resetting[rows]
            if stepped.any():
                self._show_rows(pyenv, made, rows, stepped, shown, step_types)
                over = stepped & (step_types == _LAST)
                if over.any() and order is not AutoReset.NEXT_STEP:
                    self._keep_finals(
                        made[rows[over]], over.nonzero()[0], shown, policy, (rows,)
                    )
                made[rows[stepped]] += 1
                if order is AutoReset.DISABLED and over.any():
                    resetting[rows[over]] = True
                    env.reset_async(rows[over])
                    owing += int(over.sum())
                elif order is AutoReset.SAME_STEP and over.any():
                    arrays = pyenv.current_time_step(rows)
                    shown = env.tensors(arrays)
                    step_types = np.asarray(arrays.step_type)
            resetting[rows[~stepped]] = False
            ready = ~resetting[rows]
            self._stand_rows(made, rows, ready, shown, step_types)
            going = rows[ready & (made[rows] < self.steps)]
            if going.size:
                self._send(env, policy, made, going)
                owing += len(going)

    def _begin_async(self, env: TorchEnvironment) -> None:
        """Stores the current time steps, and resets rows without an episode."""
        pyenv = env.pyenv
        if hasattr(pyenv, "current_time_step"):
            try:
                arrays = pyenv.current_time_step()
            except CallOrderError:
                arrays = None  # or they owe answers, and reset_async raises
        elif self._source is pyenv:
            self._stand(0, self._given[-1], self._acted_at[-1])
            return
        else:
            arrays = None
        if arrays is not None and _order_of(env) is AutoReset.DISABLED:
            over = (np.asarray(arrays.step_type) == _LAST).nonzero()[0]
            if over.size:
                env.reset_async(over)
                pyenv.recv(len(over))
                arrays = pyenv.current_time_step()
        if arrays is None:
            env.reset_async()
            rows, arrays = pyenv.recv()
            order = np.argsort(np.asarray(rows))
            arrays = nest.map_structure(lambda leaf: np.asarray(leaf)[order], arrays)
        self._stand(0, env.tensors(arrays), np.asarray(arrays.step_type))

    def _send(
        self, env: TorchEnvironment, policy: Policy, made: Array, rows: Array
    ) -> None:
        """Lets the policy act in some rows."""
        places, ids = self._on_device(made[rows]), self._on_device(rows)
        given = self._structure.unflatten(
            [leaf[places, ids] for leaf in self._standing]
        )
        action = self._act(policy, (places, ids), (given, ids))
        env.send(action, rows)

    # Writing.

    def _on_device(self, rows: Array) -> torch.Tensor:
        return torch.from_numpy(rows).to(self.device)

    def _stand(self, place: int, standing: TimeStep, step_types: Array) -> None:
        # Hot: called once per step.
        leaves = self._structure.flatten(standing)
        for leaf, value in zip(self._stand_at[place], leaves, strict=True):
            leaf.copy_(value)
        self._acted_at[place] = step_types

    def _show(
        self, place: int, shown: TimeStep, step_types: Array, is_new: Array
    ) -> None:
        # Hot: called once per step.
        # Between the step type and the observation.
        leaves = self._structure.flatten(shown)[1 : 1 + len(self._earned)]
        for leaf, value in zip(self._earned_at[place], leaves, strict=True):
            leaf.copy_(value)
        self._is_last[place] = step_types == _LAST
        self._is_new[place] = is_new

    def _show_rows(
        self,
        pyenv: Any,
        made: Array,
        rows: Array,
        stepped: Array,
        shown: TimeStep,
        step_types: Array,
    ) -> None:
        """Stores the results of some rows, each at its own place."""
        moved = rows[stepped]
        picked = self._on_device(stepped.nonzero()[0])
        places = self._on_device(made[moved]), self._on_device(moved)
        leaves = self._structure.flatten(shown)[1 : 1 + len(self._earned)]
        for leaf, value in zip(self._earned, leaves, strict=True):
            leaf[places] = value[picked]
        self._is_last[made[moved], moved] = step_types[stepped] == _LAST
        self._is_new[made[moved], moved] = _is_new(pyenv)[moved]

    def _stand_rows(
        self,
        made: Array,
        rows: Array,
        ready: Array,
        standing: TimeStep,
        step_types: Array,
    ) -> None:
        """Stores the current time steps of some rows, each at its own place."""
        ids = rows[ready]
        picked = self._on_device(ready.nonzero()[0])
        places = self._on_device(made[ids]), self._on_device(ids)
        for leaf, value in zip(
            self._standing, self._structure.flatten(standing), strict=True
        ):
            leaf[places] = value[picked]
        self._acted_at[made[ids], ids] = step_types[ready]

    def _keep_finals(
        self,
        transitions: Any,
        picked: Array,
        shown: TimeStep,
        policy: Policy,
        ids: tuple[Array, ...],
    ) -> None:
        """Stores the final observations of some rows, and their values.

        Args:
            transitions: The transitions that these ends belong to.
            picked: The rows to take from the time step.
            shown: The time step.
            policy: The policy that computes the values.
            ids: The rows in the time step, if it does not have all rows.
        """
        places = self._on_device(picked)
        observation = nest.map_structure(lambda leaf: leaf[places], shown.observation)
        value = None
        if _VALUE in self._extras:
            rows = tuple(map(self._on_device, ids))
            value = self._values(policy, (shown, *rows), len(shown.step_type))
            value = value.to(self.device)[places]
        if isinstance(transitions, np.ndarray):
            transitions = self._on_device(transitions)
        rows_of_ends = self._on_device(ids[0][picked] if ids else picked)
        self._finals.append(_Finals(transitions, rows_of_ends, observation, value))

    # Calling the policy.

    def _act(self, policy: Policy, place: Any, given: tuple[Any, ...]) -> NestedArray:
        """Calls the policy, and stores its result."""
        # Hot: called once per step.
        rows = len(given[0].step_type)
        action, extras = self._asked(policy, given, rows)
        values = flatten_as(
            self._action, action, subject="The policy's action", root="action"
        )
        values = [
            value
            if type(value) is torch.Tensor and value.shape[:1] == (rows,)
            else _row_values(value, rows)
            for value in values
        ]
        if not self._has_acted:
            self._make_room(values, extras)
            self._has_acted = True
        self._check_names(extras)
        values += [extras[name] for name in self._extras]
        if type(place) is int:
            for kept, value in zip(self._kept_at[place], values, strict=True):
                kept.copy_(value)
        else:
            for kept, value in zip(
                (*self._actions, *self._extras.values()), values, strict=True
            ):
                kept[place] = value.to(kept)
        return action

    def _make_room(
        self, actions: Sequence[torch.Tensor], extras: Mapping[str, torch.Tensor]
    ) -> None:
        """Creates tensors for the policy's results, unless they exist."""
        given = [_kind_of(value) for value in (*actions, *extras.values())]
        there = [_kind_of(kept[0]) for kept in (*self._actions, *self._extras.values())]
        if given == there and list(extras) == list(self._extras):
            return
        self._actions = [self._like(value, self.steps) for value in actions]
        # One place more, for the last time step, which has values but no action.
        self._extras = {
            name: self._like(value, self.steps + 1) for name, value in extras.items()
        }
        kept = [*self._actions, *self._extras.values()]
        self._kept_at = _by_place(kept, self.steps)

    def _check_names(self, extras: Mapping[str, torch.Tensor]) -> None:
        # Hot: called once per step.
        if extras.keys() != self._extras.keys():
            raise ValueError(
                f"The policy must return the same names each time, got "
                f"{listed(extras) or 'none'} after {listed(self._extras) or 'none'}."
            )

    def _asked(
        self, policy: Policy, given: tuple[Any, ...], rows: int
    ) -> tuple[NestedArray, dict[str, torch.Tensor]]:
        # Hot: called once per step.
        answer = policy(*given)
        is_pair = (
            type(answer) is tuple
            and len(answer) == 2
            and (type(answer[1]) is dict or isinstance(answer[1], Mapping))
        )
        action, found = answer if is_pair else (answer, {})
        extras = {name: torch.as_tensor(value) for name, value in found.items()}
        for name, tensor in extras.items():
            dims = tensor.shape
            if not dims or dims[0] != rows or (name == _VALUE and len(dims) != 1):
                shape = f"({rows},)" if name == _VALUE else f"({rows}, …)"
                raise ValueError(
                    f"The policy's {name!r} must be a tensor of shape {shape}, with an "
                    f"element for each row, got the shape {tuple(tensor.shape)}."
                )
        return action, extras

    def _like(self, tensor: torch.Tensor, places: int) -> torch.Tensor:
        shape = (places, self.rows, *tensor.shape[1:])
        return torch.zeros(shape, dtype=tensor.dtype, device=self.device)

    def _value_the_last(self, env: TorchEnvironment, policy: Policy) -> None:
        """Asks the policy for the values of the current time steps."""
        given: tuple[Any, ...] = (self._given[-1],)
        if env.is_async:
            given = (*given, self._on_device(np.arange(self.rows)))
        self._extras[_VALUE][-1] = self._values(policy, given, self.rows)

    def _values(
        self, policy: Policy, given: tuple[Any, ...], rows: int
    ) -> torch.Tensor:
        """Asks the policy only for values."""
        _, extras = self._asked(policy, given, rows)
        self._check_names(extras)
        return extras[_VALUE]

    # Results.

    def transitions(
        self,
        discount: float = 0.99,
        lam: float | None = 0.95,
        *,
        n_steps: int | None = None,
    ) -> Transitions:
        """Returns the transitions of the last `collect`.

        They share the buffer's memory, and are valid until the next `collect`.

        Args:
            discount: The learner's discount per step.
            lam: How much later surprises count for advantages; `None` returns
                transitions without advantages and returns, which need no values.
            n_steps: Computes returns from this many rewards and the value that follows,
                and advantages over them, instead of using `lam`.

        Raises:
            CallOrderError: Nothing has been collected.
            ValueError: The policy returned no values, or `discount` or `lam` is not
                between 0 and 1.
        """
        if not self._is_full:
            raise CallOrderError(
                "transitions() was called before collect() had collected all steps. "
                "Call collect(env, policy) first."
            )
        is_last = torch.from_numpy(self._is_last.copy()).to(self.device)
        if self._continues:
            # The step after a LAST uses its action, unless a new environment begins.
            valid = (self._acted_at[1:] != _FIRST) & self._is_new
        else:
            valid = (self._acted_at[:-1] != _LAST) & self._is_new
        plain = Transitions(
            observation=self._observation(slice(None, -1)),
            action=self._action.unflatten(self._actions),
            reward=self._reward,
            discount=self._discount,
            next_observation=self._next_observation(),
            is_last=is_last,
            valid=torch.from_numpy(valid).to(self.device),
            extras={name: extra[:-1] for name, extra in self._extras.items()},
        )
        if lam is None and n_steps is None:
            return plain
        if lam is not None and not 0.0 <= lam <= 1.0:
            raise ValueError(f"lam must be between 0 and 1, or None, got {lam!r}.")
        return self._with_advantages(plain, as_discount(discount), lam, n_steps)

    def _with_advantages(
        self,
        plain: Transitions,
        discount: float,
        lam: float | None,
        n_steps: int | None,
    ) -> Transitions:
        if _VALUE not in self._extras:
            raise ValueError(
                'Advantages need values: the policy must return actions and {"value": '
                "...}, got only actions. For transitions without advantages call "
                "transitions(lam=None)."
            )
        for name, part in (("reward", plain.reward), ("discount", plain.discount)):
            if nest.is_nested(part) or part.ndim != 2:
                raise ValueError(
                    f"Advantages need one number as the {name} of a row, and this "
                    "environment has several. Call transitions(lam=None), and "
                    "envkit.torch.generalized_advantages with one of them."
                )
        value = plain.extras[_VALUE]
        next_value = self._extras[_VALUE][1:].clone()
        for finals in self._finals:
            if finals.value is not None:
                next_value[finals.transitions, finals.rows] = finals.value.to(
                    next_value
                )
        worth = discount * plain.discount
        ends = {"last": plain.is_last, "valid": plain.valid}
        if n_steps is None:
            advantages = generalized_advantages(
                plain.reward, worth, value, next_value, **ends, lam=float(lam or 0.0)
            )
            returns = torch.where(plain.valid, advantages + value, 0.0)
        else:
            steps = checked_size("n_steps", n_steps)
            returns = n_step_returns(
                plain.reward, worth, next_value, **ends, steps=steps
            )
            advantages = torch.where(plain.valid, returns - value, 0.0)
        return dataclasses.replace(plain, advantages=advantages, returns=returns)

    def _observation(self, places: Any) -> NestedArray:
        leaves = [leaf[places] for leaf in self._standing]
        return self._structure.unflatten(leaves).observation

    def _next_observation(self) -> NestedArray:
        following = self._observation(slice(1, None))
        if not self._finals:
            return following
        following = nest.map_structure(torch.clone, following)
        for finals in self._finals:

            def write(leaf: Any, value: Any, finals: _Finals = finals) -> None:
                leaf[finals.transitions, finals.rows] = value

            nest.map_structure(write, following, finals.observation)
        return following

    def _shown_at(self, transition: int) -> TimeStep:
        step_type = self._given[transition + 1].step_type.clone()
        step_type[torch.from_numpy(self._is_last[transition])] = _LAST
        observation = self._given[transition + 1].observation
        if self._finals:
            observation = nest.map_structure(
                lambda leaf: leaf[transition], self._next_observation()
            )
        return TimeStep(
            step_type,
            nest.map_structure(lambda leaf: leaf[transition], self._reward),
            nest.map_structure(lambda leaf: leaf[transition], self._discount),
            observation,
        )


class _Shown(Sequence[TimeStep]):
    """Lists the resulting time steps of a rollout."""

    def __init__(self, buffer: RolloutBuffer) -> None:
        self._buffer = buffer

    def __len__(self) -> int:
        return self._buffer.steps

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[each] for each in range(*index.indices(len(self)))]
        return self._buffer._shown_at(range(len(self))[index])


def _by_place(tensors: Sequence[torch.Tensor], places: int) -> list[list[torch.Tensor]]:
    """Returns the views of these tensors at each place."""
    return [[tensor[place] for tensor in tensors] for place in range(places)]


def _row_values(action: Any, rows: int) -> torch.Tensor:
    """Returns an action as a tensor with one element per row."""
    must = (
        f"The policy's action must be a tensor, an array or a list of {rows} elements, "
        "one for each row, got"
    )
    try:
        tensor = torch.as_tensor(action)
    except (TypeError, ValueError, RuntimeError) as error:
        raise SpecError(f"{must} {describe(action)}.") from error
    if tensor.shape[:1] != (rows,):
        raise SpecError(f"{must} the shape {tuple(tensor.shape)}.")
    return tensor


def _kind_of(tensor: torch.Tensor) -> tuple[torch.dtype, torch.Size]:
    """Returns the properties of a tensor that do not depend on the number of rows."""
    return tensor.dtype, tensor.shape[1:]


def _as_numpy(tensor: torch.Tensor) -> Array:
    array: Array = tensor.cpu().numpy()
    return array


def _continues(env: TorchEnvironment) -> bool:
    """Returns whether the step after a `LAST` uses its action."""
    return getattr(env.pyenv, "continues_after_last", False) is True


def _order_of(env: TorchEnvironment) -> AutoReset:
    """Returns the autoreset order; one applies even if no `FIRST` follows a `LAST`."""
    return AutoReset.NEXT_STEP if _continues(env) else env.autoreset


def _is_new(pyenv: Any) -> Array:
    """Returns the rows that show something new."""
    # Hot: called once per step.
    return np.asarray(getattr(pyenv, "valid", True), bool) & ~_is_repaired(pyenv)


def _is_repaired(pyenv: Any) -> Array:
    """Returns the rows that show a made-up end of a lost environment."""
    # Hot: called once per step.
    repaired: Array = np.asarray(getattr(pyenv, "repaired", False), bool)
    return repaired
