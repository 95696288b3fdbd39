"""`RowMap`: which rows belong to which environment, and to which worker."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from envkit.parallel.slab import SlabLayout
from envkit.specs.environment_spec import EnvironmentSpec
from envkit.types import Array

__all__ = ["RowMap"]


@dataclass(frozen=True, slots=True, eq=False)
class RowMap:
    """Whose rows are whose; it never changes while there is a pool.

    Attributes:
        layout: Where the rows are, with a block for each worker.
        rows: How many rows there are.
        is_batch: For each environment, whether it is a batch itself.
        rows_of_env: For each environment, its rows.
        env_of_row: For each row, the index of its environment.
        worker_of_row: For each row, the index of its worker.
    """

    layout: SlabLayout
    rows: int
    is_batch: list[bool]
    rows_of_env: list[range]
    env_of_row: Array
    worker_of_row: Array

    @classmethod
    def of(
        cls,
        spec: EnvironmentSpec,
        batch_sizes: Sequence[Sequence[int | None]],
        info_spec: dict[str, Any],
    ) -> RowMap:
        """Gives every environment its rows, in order.

        Args:
            spec: The specs of one row.
            batch_sizes: For each worker, the batch size of each of its environments,
                `None` for a single one.
            info_spec: What all environments declare of their infos.
        """
        of_envs = [size for worker in batch_sizes for size in worker]
        sizes = [size or 1 for size in of_envs]
        stops = np.cumsum(sizes).tolist()
        rows_of_env = [
            range(stop - size, stop) for size, stop in zip(sizes, stops, strict=True)
        ]
        blocks: list[tuple[int, int]] = []
        env = 0
        for worker in batch_sizes:
            first, env = env, env + len(worker)
            blocks.append((rows_of_env[first].start, rows_of_env[env - 1].stop))
        return cls(
            layout=SlabLayout(spec, tuple(blocks), info_spec),
            rows=stops[-1],
            is_batch=[size is not None for size in of_envs],
            rows_of_env=rows_of_env,
            env_of_row=np.repeat(np.arange(len(sizes)), sizes),
            worker_of_row=np.repeat(
                np.arange(len(blocks)), [stop - first for first, stop in blocks]
            ),
        )
