"""Wrappers: environments that change one thing about another environment.

Each works on a single environment and on a batch, each row by itself, and is an
environment itself, so they nest. Names are loaded when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from envkit.lazy_names import lazy_names

if TYPE_CHECKING:
    from envkit.wrappers.actions.disabled import ExtraDisabledActionsWrapper
    from envkit.wrappers.actions.discrete import (
        ActionDiscretizeWrapper,
        DiscretizeAction,
        OneHotActionWrapper,
    )
    from envkit.wrappers.actions.flat import FlattenActionWrapper
    from envkit.wrappers.actions.transforms import (
        ActionClipWrapper,
        ActionOffsetWrapper,
        RescaleAction,
        TransformAction,
    )
    from envkit.wrappers.atari.openings import FireOnReset, NoopReset
    from envkit.wrappers.atari.preprocessing import AtariPreprocessing, FrameStack4
    from envkit.wrappers.atari.time_limit import AtariTimeLimit
    from envkit.wrappers.base import PyEnvironmentBaseWrapper
    from envkit.wrappers.checking.faults import EnvironmentWarning
    from envkit.wrappers.checking.passive_checker import PassiveChecker
    from envkit.wrappers.composition import wrap
    from envkit.wrappers.episode_limit import EpisodeLimit
    from envkit.wrappers.goals import GoalReplayEnvWrapper
    from envkit.wrappers.history.frames import DelayObservation, FrameStack
    from envkit.wrappers.history.history_wrapper import HistoryWrapper
    from envkit.wrappers.limits import FixedLength, TimeLimit
    from envkit.wrappers.normalization.normalizers import (
        NormalizeObservation,
        NormalizeReward,
    )
    from envkit.wrappers.normalization.running_statistics import RunningStatistics
    from envkit.wrappers.observations.parts import (
        FlattenObservation,
        FlattenObservationsWrapper,
        ObservationFilterWrapper,
        RenameObservation,
        SelectObservation,
    )
    from envkit.wrappers.observations.time_aware import TimeAwareObservation
    from envkit.wrappers.observations.transforms import (
        DiscretizeObservation,
        DtypeObservation,
        RescaleObservation,
        ReshapeObservation,
        TransformObservation,
    )
    from envkit.wrappers.pictures.images import (
        CropObservation,
        GrayscaleObservation,
        ResizeObservation,
        TransposeObservation,
    )
    from envkit.wrappers.pictures.rendered_observation import AddRenderObservation
    from envkit.wrappers.profiling import PerformanceProfiler
    from envkit.wrappers.repeats import (
        ActionRepeat,
        DelayAction,
        MaxAndSkipObservation,
        StickyAction,
    )
    from envkit.wrappers.rewards import ClipReward, TransformReward
    from envkit.wrappers.statistics import RecordEpisodeStatistics, RunStats
    from envkit.wrappers.video.record_video import RecordVideo
    from envkit.wrappers.video.video_schedule import capped_cubic_video_schedule

_HOMES = {
    "ActionClipWrapper": "envkit.wrappers.actions.transforms",
    "ActionDiscretizeWrapper": "envkit.wrappers.actions.discrete",
    "ActionOffsetWrapper": "envkit.wrappers.actions.transforms",
    "ActionRepeat": "envkit.wrappers.repeats",
    "AddRenderObservation": "envkit.wrappers.pictures.rendered_observation",
    "AtariPreprocessing": "envkit.wrappers.atari.preprocessing",
    "AtariTimeLimit": "envkit.wrappers.atari.time_limit",
    "ClipReward": "envkit.wrappers.rewards",
    "CropObservation": "envkit.wrappers.pictures.images",
    "DelayAction": "envkit.wrappers.repeats",
    "DelayObservation": "envkit.wrappers.history.frames",
    "DiscretizeAction": "envkit.wrappers.actions.discrete",
    "DiscretizeObservation": "envkit.wrappers.observations.transforms",
    "DtypeObservation": "envkit.wrappers.observations.transforms",
    "EnvironmentWarning": "envkit.wrappers.checking.faults",
    "EpisodeLimit": "envkit.wrappers.episode_limit",
    "ExtraDisabledActionsWrapper": "envkit.wrappers.actions.disabled",
    "FireOnReset": "envkit.wrappers.atari.openings",
    "FixedLength": "envkit.wrappers.limits",
    "FlattenActionWrapper": "envkit.wrappers.actions.flat",
    "FlattenObservation": "envkit.wrappers.observations.parts",
    "FlattenObservationsWrapper": "envkit.wrappers.observations.parts",
    "FrameStack": "envkit.wrappers.history.frames",
    "FrameStack4": "envkit.wrappers.atari.preprocessing",
    "GoalReplayEnvWrapper": "envkit.wrappers.goals",
    "GrayscaleObservation": "envkit.wrappers.pictures.images",
    "HistoryWrapper": "envkit.wrappers.history.history_wrapper",
    "MaxAndSkipObservation": "envkit.wrappers.repeats",
    "NoopReset": "envkit.wrappers.atari.openings",
    "NormalizeObservation": "envkit.wrappers.normalization.normalizers",
    "NormalizeReward": "envkit.wrappers.normalization.normalizers",
    "ObservationFilterWrapper": "envkit.wrappers.observations.parts",
    "OneHotActionWrapper": "envkit.wrappers.actions.discrete",
    "PassiveChecker": "envkit.wrappers.checking.passive_checker",
    "PerformanceProfiler": "envkit.wrappers.profiling",
    "PyEnvironmentBaseWrapper": "envkit.wrappers.base",
    "RecordEpisodeStatistics": "envkit.wrappers.statistics",
    "RecordVideo": "envkit.wrappers.video.record_video",
    "RenameObservation": "envkit.wrappers.observations.parts",
    "RescaleAction": "envkit.wrappers.actions.transforms",
    "RescaleObservation": "envkit.wrappers.observations.transforms",
    "ReshapeObservation": "envkit.wrappers.observations.transforms",
    "ResizeObservation": "envkit.wrappers.pictures.images",
    "RunStats": "envkit.wrappers.statistics",
    "RunningStatistics": "envkit.wrappers.normalization.running_statistics",
    "SelectObservation": "envkit.wrappers.observations.parts",
    "StickyAction": "envkit.wrappers.repeats",
    "TimeAwareObservation": "envkit.wrappers.observations.time_aware",
    "TimeLimit": "envkit.wrappers.limits",
    "TransformAction": "envkit.wrappers.actions.transforms",
    "TransformObservation": "envkit.wrappers.observations.transforms",
    "TransformReward": "envkit.wrappers.rewards",
    "TransposeObservation": "envkit.wrappers.pictures.images",
    "capped_cubic_video_schedule": "envkit.wrappers.video.video_schedule",
    "wrap": "envkit.wrappers.composition",
}

__all__ = [
    "ActionClipWrapper",
    "ActionDiscretizeWrapper",
    "ActionOffsetWrapper",
    "ActionRepeat",
    "AddRenderObservation",
    "AtariPreprocessing",
    "AtariTimeLimit",
    "ClipReward",
    "CropObservation",
    "DelayAction",
    "DelayObservation",
    "DiscretizeAction",
    "DiscretizeObservation",
    "DtypeObservation",
    "EnvironmentWarning",
    "EpisodeLimit",
    "ExtraDisabledActionsWrapper",
    "FireOnReset",
    "FixedLength",
    "FlattenActionWrapper",
    "FlattenObservation",
    "FlattenObservationsWrapper",
    "FrameStack",
    "FrameStack4",
    "GoalReplayEnvWrapper",
    "GrayscaleObservation",
    "HistoryWrapper",
    "MaxAndSkipObservation",
    "NoopReset",
    "NormalizeObservation",
    "NormalizeReward",
    "ObservationFilterWrapper",
    "OneHotActionWrapper",
    "PassiveChecker",
    "PerformanceProfiler",
    "PyEnvironmentBaseWrapper",
    "RecordEpisodeStatistics",
    "RecordVideo",
    "RenameObservation",
    "RescaleAction",
    "RescaleObservation",
    "ReshapeObservation",
    "ResizeObservation",
    "RunStats",
    "RunningStatistics",
    "SelectObservation",
    "StickyAction",
    "TimeAwareObservation",
    "TimeLimit",
    "TransformAction",
    "TransformObservation",
    "TransformReward",
    "TransposeObservation",
    "capped_cubic_video_schedule",
    "wrap",
]

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
