"""Wrappers: environments that change one thing about another environment.

Each works on a single environment and on a batch, row by row, and is an environment
itself, so wrappers nest. A name is loaded when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from envkit.extend import lazy_names

# The rows of the tables in docs/reference/wrappers.md, by tools/wrappers.py.
# wrappers
if TYPE_CHECKING:
    from envkit.base_wrapper import PyEnvironmentBaseWrapper as PyEnvironmentBaseWrapper
    from envkit.base_wrapper import wrap as wrap
    from envkit.wrappers.actions import ActionClipWrapper as ActionClipWrapper
    from envkit.wrappers.actions import ActionOffsetWrapper as ActionOffsetWrapper
    from envkit.wrappers.actions import RescaleAction as RescaleAction
    from envkit.wrappers.actions import TransformAction as TransformAction
    from envkit.wrappers.atari import AtariPreprocessing as AtariPreprocessing
    from envkit.wrappers.atari import AtariTimeLimit as AtariTimeLimit
    from envkit.wrappers.atari import FireOnReset as FireOnReset
    from envkit.wrappers.atari import FrameStack4 as FrameStack4
    from envkit.wrappers.atari import NoopReset as NoopReset
    from envkit.wrappers.checking import EnvironmentWarning as EnvironmentWarning
    from envkit.wrappers.checking import PassiveChecker as PassiveChecker
    from envkit.wrappers.discrete_actions import (
        ActionDiscretizeWrapper as ActionDiscretizeWrapper,
    )
    from envkit.wrappers.discrete_actions import DiscretizeAction as DiscretizeAction
    from envkit.wrappers.discrete_actions import (
        ExtraDisabledActionsWrapper as ExtraDisabledActionsWrapper,
    )
    from envkit.wrappers.discrete_actions import (
        OneHotActionWrapper as OneHotActionWrapper,
    )
    from envkit.wrappers.flat_actions import (
        FlattenActionWrapper as FlattenActionWrapper,
    )
    from envkit.wrappers.goals import GoalReplayEnvWrapper as GoalReplayEnvWrapper
    from envkit.wrappers.history import DelayObservation as DelayObservation
    from envkit.wrappers.history import FrameStack as FrameStack
    from envkit.wrappers.history import HistoryWrapper as HistoryWrapper
    from envkit.wrappers.limits import EpisodeLimit as EpisodeLimit
    from envkit.wrappers.limits import FixedLength as FixedLength
    from envkit.wrappers.limits import TimeLimit as TimeLimit
    from envkit.wrappers.log_episodes import LogEpisodes as LogEpisodes
    from envkit.wrappers.normalization import (
        NormalizeObservation as NormalizeObservation,
    )
    from envkit.wrappers.normalization import NormalizeReward as NormalizeReward
    from envkit.wrappers.normalization import RunningStatistics as RunningStatistics
    from envkit.wrappers.observation_parts import (
        FlattenObservation as FlattenObservation,
    )
    from envkit.wrappers.observation_parts import (
        FlattenObservationsWrapper as FlattenObservationsWrapper,
    )
    from envkit.wrappers.observation_parts import (
        ObservationFilterWrapper as ObservationFilterWrapper,
    )
    from envkit.wrappers.observation_parts import RenameObservation as RenameObservation
    from envkit.wrappers.observation_parts import SelectObservation as SelectObservation
    from envkit.wrappers.observations import (
        DiscretizeObservation as DiscretizeObservation,
    )
    from envkit.wrappers.observations import DtypeObservation as DtypeObservation
    from envkit.wrappers.observations import RescaleObservation as RescaleObservation
    from envkit.wrappers.observations import ReshapeObservation as ReshapeObservation
    from envkit.wrappers.observations import (
        TransformObservation as TransformObservation,
    )
    from envkit.wrappers.pictures import AddRenderObservation as AddRenderObservation
    from envkit.wrappers.pictures import CropObservation as CropObservation
    from envkit.wrappers.pictures import GrayscaleObservation as GrayscaleObservation
    from envkit.wrappers.pictures import ResizeObservation as ResizeObservation
    from envkit.wrappers.pictures import TransposeObservation as TransposeObservation
    from envkit.wrappers.private_randomness import (
        PrivateRandomness as PrivateRandomness,
    )
    from envkit.wrappers.profiling import PerformanceProfiler as PerformanceProfiler
    from envkit.wrappers.rebuild_after import RebuildAfter as RebuildAfter
    from envkit.wrappers.repeats import ActionRepeat as ActionRepeat
    from envkit.wrappers.repeats import DelayAction as DelayAction
    from envkit.wrappers.repeats import MaxAndSkipObservation as MaxAndSkipObservation
    from envkit.wrappers.repeats import StickyAction as StickyAction
    from envkit.wrappers.rewards import ClipReward as ClipReward
    from envkit.wrappers.rewards import TransformReward as TransformReward
    from envkit.wrappers.standby import StandbyEnvironment as StandbyEnvironment
    from envkit.wrappers.statistics import (
        RecordEpisodeStatistics as RecordEpisodeStatistics,
    )
    from envkit.wrappers.statistics import RunStats as RunStats
    from envkit.wrappers.time_aware import TimeAwareObservation as TimeAwareObservation
    from envkit.wrappers.video import RecordVideo as RecordVideo
    from envkit.wrappers.video import (
        capped_cubic_video_schedule as capped_cubic_video_schedule,
    )

_HOMES = {
    "ActionClipWrapper": "envkit.wrappers.actions",
    "ActionDiscretizeWrapper": "envkit.wrappers.discrete_actions",
    "ActionOffsetWrapper": "envkit.wrappers.actions",
    "ActionRepeat": "envkit.wrappers.repeats",
    "AddRenderObservation": "envkit.wrappers.pictures",
    "AtariPreprocessing": "envkit.wrappers.atari",
    "AtariTimeLimit": "envkit.wrappers.atari",
    "ClipReward": "envkit.wrappers.rewards",
    "CropObservation": "envkit.wrappers.pictures",
    "DelayAction": "envkit.wrappers.repeats",
    "DelayObservation": "envkit.wrappers.history",
    "DiscretizeAction": "envkit.wrappers.discrete_actions",
    "DiscretizeObservation": "envkit.wrappers.observations",
    "DtypeObservation": "envkit.wrappers.observations",
    "EnvironmentWarning": "envkit.wrappers.checking",
    "EpisodeLimit": "envkit.wrappers.limits",
    "ExtraDisabledActionsWrapper": "envkit.wrappers.discrete_actions",
    "FireOnReset": "envkit.wrappers.atari",
    "FixedLength": "envkit.wrappers.limits",
    "FlattenActionWrapper": "envkit.wrappers.flat_actions",
    "FlattenObservation": "envkit.wrappers.observation_parts",
    "FlattenObservationsWrapper": "envkit.wrappers.observation_parts",
    "FrameStack": "envkit.wrappers.history",
    "FrameStack4": "envkit.wrappers.atari",
    "GoalReplayEnvWrapper": "envkit.wrappers.goals",
    "GrayscaleObservation": "envkit.wrappers.pictures",
    "HistoryWrapper": "envkit.wrappers.history",
    "LogEpisodes": "envkit.wrappers.log_episodes",
    "MaxAndSkipObservation": "envkit.wrappers.repeats",
    "NoopReset": "envkit.wrappers.atari",
    "NormalizeObservation": "envkit.wrappers.normalization",
    "NormalizeReward": "envkit.wrappers.normalization",
    "ObservationFilterWrapper": "envkit.wrappers.observation_parts",
    "OneHotActionWrapper": "envkit.wrappers.discrete_actions",
    "PassiveChecker": "envkit.wrappers.checking",
    "PerformanceProfiler": "envkit.wrappers.profiling",
    "PrivateRandomness": "envkit.wrappers.private_randomness",
    "PyEnvironmentBaseWrapper": "envkit.base_wrapper",
    "RebuildAfter": "envkit.wrappers.rebuild_after",
    "RecordEpisodeStatistics": "envkit.wrappers.statistics",
    "RecordVideo": "envkit.wrappers.video",
    "RenameObservation": "envkit.wrappers.observation_parts",
    "RescaleAction": "envkit.wrappers.actions",
    "RescaleObservation": "envkit.wrappers.observations",
    "ReshapeObservation": "envkit.wrappers.observations",
    "ResizeObservation": "envkit.wrappers.pictures",
    "RunStats": "envkit.wrappers.statistics",
    "RunningStatistics": "envkit.wrappers.normalization",
    "SelectObservation": "envkit.wrappers.observation_parts",
    "StandbyEnvironment": "envkit.wrappers.standby",
    "StickyAction": "envkit.wrappers.repeats",
    "TimeAwareObservation": "envkit.wrappers.time_aware",
    "TimeLimit": "envkit.wrappers.limits",
    "TransformAction": "envkit.wrappers.actions",
    "TransformObservation": "envkit.wrappers.observations",
    "TransformReward": "envkit.wrappers.rewards",
    "TransposeObservation": "envkit.wrappers.pictures",
    "capped_cubic_video_schedule": "envkit.wrappers.video",
    "wrap": "envkit.base_wrapper",
}
# end of wrappers

__all__ = sorted(_HOMES)

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
