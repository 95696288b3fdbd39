"""Episodes on disk, and played again."""

from __future__ import annotations

import tempfile
from pathlib import Path

from typing_extensions import assert_type

import envkit
from envkit import TimeStep
from envkit.recording import Record, Recording, Replay


def record(directory: Path) -> Path:
    """Records some episodes."""
    with Record(
        envkit.make("CartPole", batch_size=2), directory, lambda episode: episode < 2
    ) as env:
        assert_type(env, Record)
        env.seed(7)
        env.reset()
        for _ in range(30):
            assert_type(env.step([0, 1]), TimeStep)
        env.annotate(0, value=0.5)
        assert_type(env.dropped, int)
        assert_type(env.directory, str)
    return directory


def main() -> None:
    """Records, reads and replays."""
    with tempfile.TemporaryDirectory() as folder:
        directory = record(Path(folder) / "episodes")
        assert_type(Recording(directory), Recording)
        with Replay(directory) as env:
            assert_type(env, Replay)
            assert_type(env.reset(), TimeStep)


def mistakes() -> None:
    """Does what mypy has to find."""
    Record(envkit.make("CartPole"), 7)  # type: ignore[arg-type]
    Record(envkit.make("CartPole"), "here", when=lambda: True)  # type: ignore[arg-type,misc]


if __name__ == "__main__":
    main()
