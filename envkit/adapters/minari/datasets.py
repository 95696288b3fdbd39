"""Minari: converts recordings to datasets, and datasets to recordings and replays.

```
recording                          dataset
observation, T + 1 of them         observations, T + 1
action, reward                     actions, rewards: T, without the FIRST's
LAST with a discount of 0          terminations
any other end                      truncations
info                               infos that every time step has in the same shape
everything else                    infos["envkit"], and "envkit" in the metadata
```

Facts without a place in Minari go there, so that converting back gives the same
recording: calls, step types, discounts, notes, specs, provenance and log.
"""

from __future__ import annotations

import os
import shutil
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from envkit import nest
from envkit.adapters.foreign import require
from envkit.adapters.gymnasium.spaces import space_from_spec, spec_from_gym_space
from envkit.errors import RecordingError
from envkit.extend import Internals, describe
from envkit.provenance import dumped, envkit_version, to_plain
from envkit.recording.format import (
    EPISODE,
    FORMAT,
    NUMBER,
    TEXT,
    VERSION,
    EpisodeFile,
    Layout,
    begin_directory,
    check_keys,
    check_provenance,
    packer,
    reading,
    unpacker,
)
from envkit.recording.replay import Replay
from envkit.recording.stored import Entry, Episode, Recording
from envkit.registry import make
from envkit.specs.arrays import ArraySpec, BoundedArraySpec
from envkit.time_step import STEP_TYPE_SPEC, StepType, TimeStep
from envkit.types import Array

__all__ = ["MinariReplay", "from_minari", "to_minari"]

# The key for facts without a place in Minari: in infos, metadata and episode facts.
_OURS = "envkit"
_FIRST, _MID, _LAST = int(StepType.FIRST), int(StepType.MID), int(StepType.LAST)
_IN_METADATA = {
    "recording": ((dict,), "a dictionary"),
    "provenance": ((dict,), "a dictionary"),
    "log": ((list,), "a list"),
}
_IN_EPISODE = {"row": NUMBER, "episode": NUMBER, "ended": TEXT}
# HDF5 gives these names of groups another meaning.
_NO_KEYS = ("", ".")


def to_minari(
    recording: str | os.PathLike[str] | Recording,
    dataset: str,
    *,
    pickle: bool = False,
    **metadata: Any,
) -> Any:
    """Writes a recording as a Minari dataset.

    It has the recorded episodes of all rows. An episode that is only a `FIRST` has no
    step and is left out; one that was abandoned ends in a truncation. An episode whose
    environment was lost is left out too, because its end is made up. Pictures are kept
    exactly, not as JPEG. Dictionaries and tuples keep their nesting, and text becomes
    lists of strings. The recording's specs become spaces.

    Args:
        recording: The recording, or its directory.
        dataset: The id of the dataset, such as `"catch/expert-v0"`.
        pickle: Whether to read pickles, if there are any, and to write them. Reading
            one may run any code.
        **metadata: Arguments of Minari's `create_dataset_from_buffers` other than the
            episodes, such as `author` and `description`.

    Returns:
        The `MinariDataset`.

    Raises:
        FileExistsError: A dataset with this id exists.
        RecordingError: The recording has no steps, or Minari cannot hold its values.
    """
    _require("Writing a dataset of Minari")
    import minari
    from minari.dataset.minari_dataset import parse_dataset_id
    from minari.storage import get_dataset_path

    if not isinstance(recording, Recording):
        recording = Recording(recording, pickle=pickle, warn=False)
    try:
        parse_dataset_id(dataset)
    except (TypeError, ValueError) as error:
        raise ValueError(
            "The id of a dataset must be a name and a version, such as "
            f"'catch/random-v0', got {dataset!r}."
        ) from error
    layout = recording.layout
    specs = layout.time_step.template
    _check_leaf("reward", specs.reward)
    _check_leaf("discount", specs.discount)
    spaces = {
        "observation_space": _space("observation", specs.observation),
        "action_space": _space("action", layout.action.template),
    }
    path = Path(get_dataset_path(dataset))
    if path.exists():
        raise FileExistsError(
            f"There is a dataset {dataset!r} of Minari in {str(path)!r} already, and "
            "none is ever overwritten. Choose another id, or remove it."
        )
    kept: list[dict[str, Any]] = []
    try:
        with warnings.catch_warnings():
            # Minari warns about each missing argument.
            warnings.filterwarnings("ignore", category=UserWarning, module="minari")
            made = minari.create_dataset_from_buffers(
                dataset,
                _buffers(recording, packer(pickle), kept),
                jpeg_encoding=False,
                **spaces,
                **metadata,
            )
        if not kept:
            raise RecordingError(
                f"The recording in {str(recording.path)!r} has no episode with a step "
                "whose environment was not lost, so there is nothing to convert."
            )
        made.storage.update_episode_metadata(kept)
        made.storage.update_metadata(
            {
                _OURS: {
                    "recording": recording.facts,
                    "provenance": recording.provenance,
                    "log": recording.events,
                }
            }
        )
    except BaseException as error:
        # Unless another program has created it since: then it is not ours to remove.
        if not (isinstance(error, ValueError) and "already exists" in str(error)):
            shutil.rmtree(path, ignore_errors=True)
        raise
    return made


def from_minari(
    dataset: Any,
    directory: str | os.PathLike[str],
    *,
    download: bool = False,
    pickle: bool = False,
) -> Recording:
    """Writes a Minari dataset as a recording.

    A dataset made by `to_minari` becomes the original recording. Any other becomes a
    recording of a `MinariReplay`.

    Args:
        dataset: The id of a dataset, or a `MinariDataset`.
        directory: The recording's directory, which is created.
        download: Whether to download a dataset that is not on this machine.
        pickle: Whether the returned recording reads pickles.

    Returns:
        The recording.

    Raises:
        FileExistsError: The directory is not empty.
        RecordingError: The dataset has values that are not arrays.
    """
    source = _Dataset(dataset, download=download, pickle=pickle)
    path = Path(os.path.abspath(directory))
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise FileExistsError(
            f"{str(path)!r} is not an empty directory, and a recording needs its own. "
            "Choose another one."
        )
    if not source.is_ours:
        env = make("envkit.adapters.minari:MinariReplay", dataset=source.id)
        source.provenance = env.provenance()
        env.close()
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        begin_directory(unfinished, source.facts, source.provenance)
        for entry in source.entries:
            _write_episode(unfinished, *source.content(entry))
        lines = "".join(f"{dumped(event)}\n" for event in source.events)
        (unfinished / "log.jsonl").write_text(lines, "utf-8")
        os.replace(unfinished, path)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise
    return Recording(path, pickle=pickle, warn=False)


class _MinariInternals(Internals):
    """Names the package that the episodes come from."""

    def packages(self, env: Any) -> set[str]:
        return {"minari"}


class MinariReplay(Replay):
    """Plays the episodes of a Minari dataset one after another, as `Replay` does.

    The first time step of an episode has reward 0. The last one is a `LAST`, with
    discount 0 if the dataset says that the episode was terminated.
    """

    _envkit = _MinariInternals()

    def __init__(
        self,
        dataset: Any,
        *,
        episodes: Sequence[int] | None = None,
        actions: str = "ignore",
        at_end: str = "raise",
        download: bool = False,
        pickle: bool = False,
    ) -> None:
        """Opens a dataset.

        Args:
            dataset: The id of a dataset, or a `MinariDataset`.
            episodes: The numbers of the episodes to play; `None` for all.
            actions: "ignore" actions, or "check" that they match the dataset's.
            at_end: "raise" `RecordingEnded` after the last episode, or "repeat" from
                the first.
            download: Whether to download a dataset that is not on this machine.
            pickle: Whether to read pickles, if there are any. That may run any code.
        """
        super().__init__(
            _Dataset(dataset, download=download, pickle=pickle),
            episodes=episodes,
            actions=actions,
            at_end=at_end,
        )


class _Dataset(Recording):
    """Reads a Minari dataset as if it were a recording.

    Attributes:
        id: The id of the dataset.
        is_ours: True if `to_minari` made it, and nothing was added since.
    """

    def __init__(self, dataset: Any, *, download: bool, pickle: bool) -> None:
        _require("Reading a dataset of Minari")
        import minari

        if isinstance(dataset, str):
            dataset = minari.load_dataset(dataset, download=download)
        if not isinstance(dataset, minari.MinariDataset):
            raise TypeError(
                "dataset must be the id of a dataset of Minari, or a MinariDataset, "
                f"got {describe(dataset)}."
            )
        self._dataset = dataset
        self.id: str = dataset.id
        self.path = self._root = Path(dataset.storage.data_path)
        self._reads_pickles = pickle
        self._unpack = unpacker(pickle)
        indices = dataset.episode_indices.tolist()
        if not indices:
            raise RecordingError(f"The dataset {self.id!r} has no episodes.")
        # Not Minari's property, which only knows its own keys.
        metadata = dataset.storage.read_raw_metadata(self.path)
        known = list(dataset.storage.get_episode_metadata(indices))
        self.is_ours = _OURS in metadata and all(_OURS in one for one in known)
        places: list[tuple[int, int]] = [(0, index) for index in indices]
        if self.is_ours:
            places = self._take_ours(metadata[_OURS], known)
        else:
            self._take_theirs(known)
        self.batch_size = self.facts["batch_size"]
        self._indices = dict(zip(places, indices, strict=True))
        self._ends = {
            place: one.get(_OURS, {}).get("ended", "last")
            for place, one in zip(places, known, strict=True)
        }
        self.entries = sorted(
            Entry(row, number, EPISODE, self.path / f"episode_{index}")
            for (row, number), index in self._indices.items()
        )

    def _take_ours(self, ours: Any, known: list[Any]) -> list[tuple[int, int]]:
        """Reads the recording's facts; returns the place of each episode."""
        subject = f"The metadata of the dataset {self.id!r}"
        check_keys(ours, _IN_METADATA, subject, f"[{_OURS!r}]")
        with reading(subject):
            self.facts = self._checked_facts(ours["recording"])
        self.provenance = ours["provenance"]
        check_provenance(self.provenance, subject)
        self.__dict__["events"] = ours["log"]
        places = []
        for one in known:
            ours = {
                key: value.item() if isinstance(value, np.generic) else value
                for key, value in one[_OURS].items()
            }
            check_keys(ours, _IN_EPISODE, f"An episode of the dataset {self.id!r}")
            one[_OURS] = ours
            places.append((ours["row"], ours["episode"]))
        return places

    def _take_theirs(self, known: list[Any]) -> None:
        """Derives facts for a dataset that envkit did not write."""
        first = self._read(self._dataset.episode_indices[0])
        specs = TimeStep(
            STEP_TYPE_SPEC,
            ArraySpec(first.rewards.shape[1:], first.rewards.dtype, "reward"),
            BoundedArraySpec((), np.float32, 0.0, 1.0, "discount"),
            spec_from_gym_space(self._dataset.observation_space),
        )
        action = spec_from_gym_space(self._dataset.action_space)
        for spec in nest.flatten([specs.observation, action]):
            if spec.dtype.hasobject:
                raise RecordingError(
                    f"The dataset {self.id!r} has values of {spec}, which are no "
                    "arrays of one shape: spaces of text whose letters include NUL "
                    "cannot be read."
                )
        self.__dict__["layout"] = layout = Layout(specs, action, {})
        self.facts = {
            "format": FORMAT,
            "format_version": VERSION,
            "envkit": envkit_version(),
            "batch_size": None,
            "repeats_last": False,
            "when": "always",
            "begun_before": False,
            "specs": layout.as_plain(),
        }
        self.provenance = {}
        self.__dict__["events"] = [{"event": "closed", "episodes": [len(known)]}]
        # The calls before each episode, as if one environment had played all of them.
        lengths = [int(one["total_steps"]) + 1 for one in known]
        starts = np.cumsum([0, *lengths[:-1]]).tolist()
        self._starts = dict(
            zip(self._dataset.episode_indices.tolist(), starts, strict=True)
        )

    def load(self, entry: Entry) -> Episode:
        """Reads an episode."""
        with reading(repr(str(entry.path))):
            return Episode(*self.content(entry), entry, self.layout, self._unpack)

    def content(self, entry: Entry) -> tuple[dict[str, Any], dict[str, Any]]:
        """Returns an episode's facts and columns, in the form of its file."""
        place = entry.row, entry.number
        with reading(repr(str(entry.path))):
            episode = self._read(self._indices[place])
            columns = self._our_columns(episode) if self.is_ours else None
            if columns is None:
                columns = self._their_columns(episode)
        facts = {
            "kind": EPISODE,
            "row": entry.row,
            "episode": entry.number,
            "last_episode": entry.number,
            "time_steps": len(episode.rewards) + 1,
            "ended": self._ends[place],
        }
        return facts, columns

    def _read(self, index: int) -> Any:
        return next(iter(self._dataset.iterate_episodes([index])))

    def _columns_of(self, episode: Any, reward: Array, discount: Array) -> Any:
        """Returns the columns of time steps, without the step types."""
        template = self.layout.time_step.template
        observation = self._like(template.observation, episode.observations)
        time_steps = TimeStep(np.empty(0), reward, discount, observation)
        named = zip(
            self.layout.steps, self.layout.time_step.flatten(time_steps), strict=True
        )
        return {name: column for name, column in named if name != "step_type"}

    def _action_columns(self, episode: Any, firsts: list[Array]) -> dict[str, Any]:
        layout = self.layout
        actions = layout.action.flatten(
            self._like(layout.action.template, episode.actions)
        )
        return {
            name: np.concatenate([first, column], dtype=column.dtype)
            for name, first, column in zip(layout.actions, firsts, actions, strict=True)
        }

    def _our_columns(self, episode: Any) -> dict[str, Any]:
        layout, ours = self.layout, episode.infos[_OURS]
        # Empty HDF5 groups are read as empty, or not at all.
        firsts, infos = ours.get("action", {}), ours.get("info_arrays", {})
        columns = {
            "call": ours["call"],
            "step_type": ours["step_type"],
            **self._action_columns(
                episode,
                [
                    _value_like(spec, firsts[str(index)])
                    for index, spec in enumerate(layout.action.leaves)
                ],
            ),
            **self._columns_of(episode, ours["reward"], ours["discount"]),
        }
        for index, (name, spec) in enumerate(
            zip(layout.infos, layout.info.leaves, strict=True)
        ):
            if str(index) in infos:
                columns[name] = _value_like(spec, infos[str(index)])
        for name in ("info", "annotations"):
            if name in ours:
                columns[name] = list(ours[name])
        return columns

    def _their_columns(self, episode: Any) -> dict[str, Any]:
        layout, steps = self.layout, len(episode.rewards)
        step_type = np.full(steps + 1, _MID, STEP_TYPE_SPEC.dtype)
        step_type[0], step_type[-1] = _FIRST, _LAST
        discount = np.ones(steps + 1, np.float32)
        discount[1:][np.asarray(episode.terminations, bool)] = 0.0
        no_reward = np.zeros((1, *episode.rewards.shape[1:]), episode.rewards.dtype)
        reward = np.concatenate([no_reward, episode.rewards])
        no_actions = [
            np.zeros((1, *spec.shape), spec.dtype) for spec in layout.action.leaves
        ]
        start = self._starts[int(episode.id)]
        return {
            "call": np.arange(start, start + steps + 1),
            "step_type": step_type,
            **self._action_columns(episode, no_actions),
            **self._columns_of(episode, reward, discount),
            "info": _info_lines(episode.infos or {}, steps),
        }

    def _like(self, template: Any, values: Any) -> Any:
        """Arranges values read by Minari in the structure of specs."""
        if isinstance(template, Mapping):
            return {
                key: self._like(spec, values[key]) for key, spec in template.items()
            }
        if isinstance(template, list | tuple):
            pairs = zip(template, values, strict=True)
            rows = [self._like(spec, value) for spec, value in pairs]
            is_named = hasattr(template, "_fields")
            return type(template)(*rows) if is_named else type(template)(rows)
        array = _value_like(template, values)
        # Values of other datasets may be wider than their spaces.
        return array if self.is_ours else array.astype(template.dtype, copy=False)

    def __reduce__(self) -> Any:
        return _reopened, (self._dataset, self._reads_pickles)


def _reopened(dataset: Any, pickle: bool) -> _Dataset:
    return _Dataset(dataset, download=False, pickle=pickle)


def _require(needed_by: str) -> None:
    require("minari", needed_by=needed_by, extra="minari")
    require("h5py", needed_by="Minari", extra="minari")
    require("PIL", needed_by="Minari", extra="minari")


def _check_leaf(name: str, spec: Any) -> None:
    if not isinstance(spec, ArraySpec) or (name == "discount" and spec.shape != ()):
        raise RecordingError(
            f"Minari cannot hold {name}s of {describe(spec)}: an episode has one array "
            f"of {name}s. Wrap the environment so that it gives one."
        )


def _space(what: str, spec: Any) -> Any:
    """Returns a space that Minari can write."""
    from minari.serialization import deserialize_space, serialize_space

    for key in _keys(spec):
        if not isinstance(key, str) or key in _NO_KEYS or "/" in key:
            raise RecordingError(
                f"Minari cannot hold the {what}, which has the key {key!r}: a key must "
                "be a string that names a group of HDF5, without '/'."
            )
    for leaf in nest.flatten(spec):
        if 0 in leaf.shape:
            raise RecordingError(
                f"Minari cannot hold the {what}, which has an array of shape "
                f"{leaf.shape}: an array must have at least one element."
            )
    space = space_from_spec(spec)
    try:
        # Also read it: Minari writes more than 2**63 choices but cannot read them.
        deserialize_space(serialize_space(space))
    except (NotImplementedError, OverflowError, TypeError, ValueError, AssertionError):
        raise RecordingError(
            f"Minari cannot hold the {what}: it cannot store the space {space}, or one "
            "within it. Wrap the environment so that it gives arrays."
        ) from None
    return space


def _keys(value: Any) -> Iterator[Any]:
    if isinstance(value, Mapping):
        yield from value
        value = list(value.values())
    if isinstance(value, list | tuple):
        for item in value:
            yield from _keys(item)


def _buffers(recording: Recording, pack: Any, kept: list[dict[str, Any]]) -> Any:
    """Yields an `EpisodeBuffer` for each episode, and appends its facts to `kept`."""
    from minari.data_collector import EpisodeBuffer

    for episode in recording.episodes():
        # Minari cannot mark an end that no environment has returned.
        if len(episode) < 2 or recording.loss_of(episode) is not None:
            continue
        layout = recording.layout
        step_type = np.asarray(episode.step_types)
        steps = [episode.column(name) for name in layout.steps]
        actions = [episode.column(name) for name in layout.actions]
        time_steps = layout.time_step.unflatten(steps)
        is_last = step_type == _LAST
        terminations = is_last & (time_steps.discount == 0)
        truncations = is_last & ~terminations
        truncations[-1] |= not is_last[-1]
        kept.append(
            {
                f"{_OURS}/row": episode.row,
                f"{_OURS}/episode": episode.number,
                f"{_OURS}/ended": episode.ended,
            }
        )
        yield EpisodeBuffer(
            observations=_for_minari(time_steps.observation),
            actions=_for_minari(
                layout.action.unflatten([action[1:] for action in actions])
            ),
            rewards=time_steps.reward[1:],
            terminations=terminations[1:],
            truncations=truncations[1:],
            infos={
                **_infos(episode),
                _OURS: {
                    "call": episode.calls,
                    "step_type": step_type,
                    "reward": time_steps.reward,
                    "discount": time_steps.discount,
                    "action": _numbered([action[:1] for action in actions]),
                    **_rest(episode, layout, pack),
                },
            },
        )


def _infos(episode: Episode) -> dict[str, Any]:
    """Returns the infos that all time steps have, if their arrays share one shape."""
    if not episode.has_info:
        return {}
    found = _stacked([episode.info(step) for step in range(len(episode))])
    if not isinstance(found, dict):
        return {}
    return {key: value for key, value in found.items() if key != _OURS}


def _stacked(values: list[Any]) -> Any:
    """Stacks values into an array, or several by key; `None` if they differ."""
    if all(isinstance(value, Mapping) for value in values):
        shared = {
            key: _stacked([value[key] for value in values])
            for key in values[0]
            if all(key in value for value in values)
        }
        return {
            key: value
            for key, value in shared.items()
            if value is not None
            and isinstance(key, str)
            and key not in _NO_KEYS
            and "/" not in key
        } or None
    if all(isinstance(value, str) for value in values):
        return None if any("\0" in value for value in values) else values
    kinds = (bool, int, float, np.ndarray, np.generic)
    if not all(isinstance(value, kinds) for value in values):
        return None
    try:
        arrays = [np.asarray(value) for value in values]
    except OverflowError:
        return None
    alike = {(array.shape, array.dtype) for array in arrays}
    if len(alike) > 1 or arrays[0].dtype.kind not in "biuf" or not arrays[0].size:
        return None
    return np.stack(arrays)


def _rest(episode: Episode, layout: Layout, pack: Any) -> dict[str, Any]:
    """Returns an episode's infos and notes, to restore them when converting back."""
    rest: dict[str, Any] = {}
    if episode.has_info:
        lines = episode.column("info")
        rest["info"] = [dumped(to_plain(line, "info", pack)) for line in lines]
        rest["info_arrays"] = _numbered([episode.column(name) for name in layout.infos])
    notes = [
        (step, note)
        for step in range(len(episode))
        if (note := episode.annotations(step))
    ]
    if notes:
        rest["annotations"] = [
            dumped({"step": step, "values": to_plain(note, "note", pack)})
            for step, note in notes
        ]
    return rest


def _numbered(columns: list[Any]) -> dict[str, Any]:
    return {str(index): _for_minari(column) for index, column in enumerate(columns)}


def _for_minari(value: Any) -> Any:
    """Returns arrays in dictionaries and tuples, with text as lists of strings."""
    if isinstance(value, Mapping):
        return {key: _for_minari(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return tuple(_for_minari(item) for item in value)
    return value.tolist() if value.dtype.kind == "U" else value


def _value_like(spec: ArraySpec, values: Any) -> Array:
    if spec.dtype.kind == "U":
        return np.array(_text_in(values), spec.dtype)
    return np.asarray(values)


def _text_in(values: Any) -> list[str]:
    return [
        value.decode("utf-8") if isinstance(value, bytes) else value for value in values
    ]


def _info_lines(infos: Mapping[str, Any], steps: int) -> list[str]:
    """Returns each time step's info as a line of JSON."""
    pack = packer(False)
    return [
        dumped(to_plain(_info_at(infos, step, steps), "info", pack))
        for step in range(steps + 1)
    ]


def _info_at(infos: Mapping[str, Any], step: int, steps: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in infos.items():
        if key == _OURS:
            continue
        if isinstance(value, Mapping):
            found[key] = _info_at(value, step, steps)
            continue
        # Some datasets have infos for steps only, without one for the reset.
        index = step - (steps + 1 - len(value))
        if index >= 0:
            item = value[index]
            found[key] = item.decode("utf-8") if isinstance(item, bytes) else item
    return found


def _write_episode(
    directory: Path, facts: dict[str, Any], columns: dict[str, Any]
) -> None:
    name = f"{facts['kind']}-{facts['episode']:06d}.npz"
    file = EpisodeFile(directory / f"row-{facts['row']:03d}" / name, compress=True)
    for column, values in columns.items():
        is_array = isinstance(values, np.ndarray)
        for index in range(len(values)):
            value = values[index, ...] if is_array else _text_in([values[index]])[0]
            file.add(column, value)
    file.finish(facts)
