"""Reasoning Gym's datasets as envkit environments.

| Reasoning Gym                      | envkit                                         |
|------------------------------------|------------------------------------------------|
| an entry's `question`              | the observation                                |
| a model's reply                    | the action                                     |
| `score_answer(answer, entry)`      | the reward of the only step, which terminates  |
| an entry's `answer` and `metadata` | in the info of the end                         |
"""

from __future__ import annotations

import copy
import dataclasses
import importlib
import random
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from envkit.adapters.foreign import ForeignEnvironment, limited_and_wrapped
from envkit.adapters.reasoning_gym import SCHEME
from envkit.adapters.values import text_action
from envkit.extend import Result, checked_size, describe, listed, suggestion
from envkit.py_environment import PyEnvironment
from envkit.specs.arrays import ArraySpec, BoundedArraySpec
from envkit.specs.special import ObjectSpec, Strings
from envkit.types import NestedArray
from envkit.wrappers.limits import TimeLimit

__all__ = ["ReasoningGymWrapper", "load", "names", "preload"]

# Several datasets in one; its configuration says which.
_COMPOSITE = "composite"


def load(
    environment_name: str,
    dataset_seed: int = 0,
    answer_tag: str | None = "answer",
    env_wrappers: Sequence[Callable[[PyEnvironment], PyEnvironment]] = (),
    *,
    private_randomness: bool = True,
    **config: Any,
) -> PyEnvironment:
    """Makes an environment of a dataset of Reasoning Gym.

    `envkit.make("reasoning_gym:leg_counting")` calls this.

    Args:
        environment_name: The dataset's name.
        dataset_seed: As for `ReasoningGymWrapper`.
        answer_tag: As for `ReasoningGymWrapper`.
        env_wrappers: Wrappers for the environment, innermost first.
        private_randomness: Whether the dataset gets its own global random generators,
            with `PrivateRandomness`.
        **config: As for `ReasoningGymWrapper`.

    Raises:
        ValueError: There is no such dataset, or it refuses the configuration.
    """
    _require(f"The dataset {environment_name!r}")
    env: PyEnvironment = ReasoningGymWrapper(
        environment_name, dataset_seed=dataset_seed, answer_tag=answer_tag, **config
    )
    return limited_and_wrapped(
        env, None, TimeLimit, env_wrappers, private_randomness=private_randomness
    )


def names() -> list[str]:
    """Lists the datasets that need no configuration, sorted.

    Example:
        >>> "leg_counting" in names()  # doctest: +SKIP
        True
    """
    _require("suite_reasoning_gym")
    return sorted(name for name in _datasets() if name != _COMPOSITE)


def preload(environment_name: str) -> None:
    """Imports Reasoning Gym."""
    _require(f"The dataset {environment_name!r}")
    _datasets()


class ReasoningGymWrapper(ForeignEnvironment):
    """Asks the questions of a dataset of Reasoning Gym, one an episode.

    The observation is the question, and the action a reply of any length. The reward is
    the score of the answer in it, usually from 0 to 1, and the episode terminates. If a
    reply makes the scoring fail, its score is 0, and the info has the `score_error`.

    The info has the entry's `index`. At the end it has the `answer` that was scored,
    and the entry's `correct_answer` and `metadata`, which tell it too.

    After `seed(s)` the next question is entry `s` of the dataset, modulo its size.
    Later ones are entries drawn at random, the same in every run. Each entry depends on
    the dataset's configuration and its index alone.

    Attributes:
        dataset: The dataset of Reasoning Gym.
    """

    _global_generators = ("random", "numpy")
    _in_state = ("_info", "_next_seed", "_rng", "_index")
    _library = "Reasoning Gym"

    def __init__(
        self,
        environment_name: str,
        *,
        dataset_seed: int = 0,
        answer_tag: str | None = "answer",
        **config: Any,
    ) -> None:
        """Makes a dataset.

        Args:
            environment_name: Its name.
            dataset_seed: The seed of the dataset, as part of its configuration.
                Environments with the same one have the same entries.
            answer_tag: The answer is what the last `<answer>...</answer>` of a reply
                has inside, or the whole reply without one; `None` for the whole reply.
            **config: More of the configuration: `max_animals=5`, `size=1000`.
        """
        _require("ReasoningGymWrapper")
        if "seed" in config:
            # As Python says it, so that make(..., seed=3) seeds the environment.
            raise TypeError(
                "ReasoningGymWrapper got an unexpected keyword argument 'seed'. The "
                "dataset's is dataset_seed; env.seed(index) chooses the question."
            )
        super().__init__(handle_auto_reset=True)
        self._name = f"Reasoning Gym's {environment_name}"
        self.dataset = _shared(environment_name, {**config, "seed": dataset_seed})
        self._foreign = self.dataset
        self._answer_tag = answer_tag
        self._rng = random.Random()
        self._entry: Mapping[str, Any] = {}
        self._index = 0
        self._observation_spec = ObjectSpec(name="question", kind=Strings(str))
        self._action_spec = ObjectSpec(name="reply", kind=Strings(str))
        self._prepare()

    def info_spec(self) -> dict[str, ArraySpec]:
        """Returns the spec of the entry's index."""
        last = len(self.dataset) - 1
        return {"index": BoundedArraySpec((), np.int64, 0, last, "index")}

    def _begin(self, seed: int | None, options: Any) -> tuple[Any, Any]:
        if seed is None:
            self._index = self._rng.randrange(len(self.dataset))
        else:
            self._rng = random.Random(seed)
            self._index = seed % len(self.dataset)
        self._entry = self._read()
        return self._entry["question"], self._index_info()

    def _read(self) -> Mapping[str, Any]:
        """Reads the entry; a few datasets draw from `random` for it."""
        before = random.getstate()
        random.seed(self._index)
        try:
            entry: Mapping[str, Any] = self.dataset[self._index]
        finally:
            random.setstate(before)
        return entry

    def _index_info(self) -> dict[str, Any]:
        return {"index": np.asarray(self._index, np.int64)}

    def _move(self, action: str) -> Any:
        entry, answer = self._entry, self._answer_in(action)
        info = {
            **self._index_info(),
            "answer": answer,
            "correct_answer": entry["answer"],
            "metadata": entry["metadata"],
        }
        try:
            score = float(self.dataset.score_answer(answer, entry))
        # Some scorers parse replies carelessly. It is the reply that is wrong.
        except Exception as error:
            score, info["score_error"] = 0.0, f"{type(error).__name__}: {error}"
        return Result(entry["question"], score, True, info=info)

    def _answer_in(self, reply: str) -> str:
        from reasoning_gym.utils import extract_answer

        if self._answer_tag is None:
            return reply
        answer: str | None = extract_answer(reply, tag_name=self._answer_tag)
        return reply.strip() if answer is None else answer

    def _to_action(self, action: NestedArray) -> str:
        return text_action(action, self._action_spec)

    def _to_observation(self, observation: str) -> NestedArray:
        return ObjectSpec.wrap(observation)

    def _draw(self, mode: str) -> Any:
        raise NotImplementedError(
            f"{self._name} has no pictures: the question is the observation."
        )

    def _get_state(self) -> Any:
        kept = [getattr(self, name) for name in self._in_state]
        return self._name, copy.deepcopy(kept)

    def _set_state(self, state: Any) -> None:
        name, kept = state
        if name != self._name:
            raise ValueError(f"{self._name} was given the state of {name}.")
        for attribute, value in zip(self._in_state, copy.deepcopy(kept), strict=True):
            setattr(self, attribute, value)
        self._entry = self._read()


# A process has one of each, however many environments: some take seconds to load.
_SHARED: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()


def _shared(name: str, config: dict[str, Any]) -> Any:
    key = f"{name} {sorted(config.items())!r}"
    dataset = _SHARED.get(key)
    if dataset is None:
        dataset = _SHARED[key] = _made(name, config)
    return dataset


def _made(name: str, config: dict[str, Any]) -> Any:
    import reasoning_gym
    from reasoning_gym.composite import DatasetSpec

    _check_settings(name, config)
    if name == _COMPOSITE:
        parts = [_part_of(part) for part in config.get("datasets") or ()]
        for part in parts:
            _check_settings(part["name"], part["config"])
        config["datasets"] = [DatasetSpec(**part) for part in parts]
    try:
        return reasoning_gym.create_dataset(name, **config)
    except AssertionError as error:  # its way to check settings
        raise ValueError(
            f"Reasoning Gym's {name} refuses its settings: {error}."
        ) from error


def _check_settings(name: str, config: Mapping[str, Any]) -> None:
    known = _datasets()
    if name not in known:
        raise ValueError(
            f"Reasoning Gym has no dataset {name!r}.{suggestion(name, known)} "
            "`envkit list reasoning_gym:` lists them."
        )
    fields = [field.name for field in dataclasses.fields(known[name][1])]
    for unknown in config:
        if unknown not in fields:
            raise TypeError(
                f"Reasoning Gym's {name} has no setting {unknown!r}."
                f"{suggestion(unknown, fields)} It has {listed(fields, most=30)}."
            )
    if "size" in config:
        checked_size("size", config["size"])


def _part_of(part: Any) -> dict[str, Any]:
    """Returns all settings of one dataset of several."""
    usual = {"name": "", "weight": 1.0, "config": {}}
    if dataclasses.is_dataclass(part):  # a DatasetSpec
        part = vars(part)
    if isinstance(part, str):
        part = {"name": part}
    if not isinstance(part, Mapping) or not {"name"} <= part.keys() <= usual.keys():
        raise TypeError(
            f"Each of datasets must be a name, or a dictionary with 'name' and, if "
            f"needed, 'weight' and 'config', got {describe(part)}."
        )
    return {**usual, **part}


def _datasets() -> Mapping[str, Any]:
    """Returns the classes of datasets and configurations by name."""
    importlib.import_module("reasoning_gym")
    found: Mapping[str, Any] = importlib.import_module("reasoning_gym.factory").DATASETS
    return found


def _require(needed_by: str) -> None:
    error = SCHEME.missing(needed_by)
    if error is not None:
        raise error
