"""The pictures of a recording's page: as many as fit, evenly spaced, as PNG."""

from __future__ import annotations

import contextlib
import math
from base64 import b64encode
from typing import Any

from envkit._shared.png import png_of, png_size, shrunk
from envkit.play.viewing import StepPicture
from envkit.recording.stored import Episode, Recording
from envkit.types import Array

__all__ = ["PagePictures"]

_MOST = 2000
# As base64 they are 50 MB; a larger page opens slowly.
_MOST_BYTES = 36 * 2**20
# Larger pictures are shrunk to this many pixels on their longer side.
_LARGEST_SIDE = 640


class PagePictures:
    """Collects the pictures of a page, and thins them when there are too many.

    Attributes:
        source: "recorded", "drawn" or "observed"; `None` while there are none.
        problem: Why pictures are missing, for readers of the page; "" if none are.
        differs: True if the environment no longer does what was recorded.
    """

    def __init__(self, recording: Recording, most: int | None = None) -> None:
        """Begins without pictures.

        Args:
            recording: The recording.
            most: The approximate maximum number of pictures; by default 2,000, and
                fewer if they are large.
        """
        self.source: str | None = None
        self.problem = ""
        self.differs = False
        self._most = most or _MOST
        self._most_bytes = math.inf if most else _MOST_BYTES
        self._last = {
            (one.row, one.number): len(one) - 1 for one in recording.episodes()
        }
        self._stride = max(1, round(self.time_steps / self._most))
        self._films: dict[tuple[int, int], dict[int, bytes]] = {}
        # The last time step of each episode that was looked at.
        self._seen: dict[tuple[int, int], int] = {}
        self._count = self._bytes = 0
        self._is_full = False

    @property
    def time_steps(self) -> int:
        """How many time steps the recording has."""
        return sum(self._last.values()) + len(self._last)

    def __len__(self) -> int:
        return self._count

    def take_kept(self, recording: Recording, look: StepPicture) -> None:
        """Takes the pictures that a recording holds itself."""
        for episode in recording.episodes():
            for step in range(len(episode)):
                if self.wants(episode, step):
                    with contextlib.suppress(LookupError):  # not every step has one
                        self._take_kept(episode, step, look)

    def _take_kept(self, episode: Episode, step: int, look: StepPicture) -> None:
        png = episode.png(step)
        if png is not None and max(png_size(png)) <= _LARGEST_SIDE:
            self._add(episode, step, png, "recorded")
            return
        source = "observed" if png is None else "recorded"
        self.add(episode, step, look(episode, step), source)

    def wants(self, episode: Episode, step: int) -> bool:
        """Returns True if the picture of a time step belongs into the page."""
        of = episode.row, episode.number
        self._seen[of] = step
        return not self._is_full and self._is_due(step, self._last[of])

    def _is_due(self, step: int, last: int) -> bool:
        return step % self._stride == 0 or step == last

    def add(self, episode: Episode, step: int, picture: Array, source: str) -> None:
        """Adds the picture of a time step."""
        self._add(episode, step, png_of(shrunk(picture, _LARGEST_SIDE)), source)

    def _add(self, episode: Episode, step: int, png: bytes, source: str) -> None:
        self.source = source
        film = self._films.setdefault((episode.row, episode.number), {})
        film[step] = png
        self._count += 1
        self._bytes += len(png)
        while not self._is_full and (
            self._count > self._most * 1.5 or self._bytes > self._most_bytes
        ):
            self._thin()

    def _thin(self) -> None:
        """Keeps every second picture; is full if only firsts and lasts are left."""
        if self._stride > max(self._last.values()):
            self._is_full = True
            return
        self._stride *= 2
        for of, film in self._films.items():
            due = {
                step: png
                for step, png in film.items()
                if self._is_due(step, self._last[of])
            }
            self._films[of] = due
        kept = [png for film in self._films.values() for png in film.values()]
        self._count, self._bytes = len(kept), sum(map(len, kept))

    def film(self, episode: Episode) -> dict[str, Any]:
        """Returns the pictures of an episode, for the page's script."""
        of = episode.row, episode.number
        film = self._films.get(of, {})
        until = self._seen.get(of, -1)
        return {
            "steps": list(film),
            "png": [b64encode(png).decode() for png in film.values()],
            # Later steps have no pictures, not even older ones.
            "until": until,
            "note": self._note(film, until == self._last[of]),
        }

    def _note(self, film: dict[int, bytes], is_whole: bool) -> str | None:
        if self.problem and not is_whole:
            return self.problem
        if self._is_full and not film:
            return (
                "The page has room for no more pictures; envkit replay --pictures "
                "keeps more."
            )
        if film and self._stride > 1:
            return (
                f"The page has one picture for every {self._stride} time steps, and "
                "the last one; envkit replay --pictures keeps more."
            )
        return None
