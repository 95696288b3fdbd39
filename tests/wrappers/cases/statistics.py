"""Wrappers that count steps and episodes."""

from envkit.wrappers.statistics import RecordEpisodeStatistics, RunStats
from tests.wrappers.case import Case
from tests.wrappers.environments import ALL

CASES = [
    Case("run_stats", RunStats, ALL),
    Case("record_episode_statistics", RecordEpisodeStatistics, ALL, require=("info",)),
]
