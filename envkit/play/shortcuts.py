"""The keys for pausing, quitting and so on, which are not actions: `Shortcuts`."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from envkit.play.keys import key_text

__all__ = ["PLAYING", "WATCHING", "Shortcuts"]

# The meanings of shortcuts, each with its keys, the best first.
PLAYING: Mapping[str, Sequence[str]] = {
    "pause": ("space", "p", "tab"),
    "reset": ("r", "backspace"),
    "keys": ("?", "h", "f1"),
    "quit": ("q", "esc"),
}
WATCHING: Mapping[str, Sequence[str]] = {
    "pause": ("space",),
    "forward": ("right",),
    "back": ("left",),
    "next": ("n", "down"),
    "previous": ("p", "up"),
    "quit": ("q", "esc"),
}


class Shortcuts:
    """Maps keys that are not actions, such as those that pause and quit.

    Example:
        >>> shortcuts = Shortcuts(PLAYING, used={"space", "q"})
        >>> shortcuts.of("p"), shortcuts.of("space"), shortcuts.of("esc")
        ('pause', None, 'quit')
        >>> shortcuts.text()
        'p pause   r reset   ? keys   esc quit'
    """

    def __init__(
        self, meanings: Mapping[str, Sequence[str]], used: Collection[str] = ()
    ) -> None:
        """Leaves out keys that already have another use."""
        self._keys = {
            what: [key for key in keys if key not in used]
            for what, keys in meanings.items()
        }
        self._meaning = {key: what for what, keys in self._keys.items() for key in keys}

    def of(self, key: str) -> str | None:
        """Returns the meaning of a key; `None` if it has none."""
        return self._meaning.get(key)

    def text(self, meanings: Collection[str] | None = None) -> str:
        """Returns the keys as text for players, one for each of the meanings."""
        return "   ".join(
            f"{key_text(keys[0])} {what}"
            for what, keys in self._keys.items()
            if keys and (meanings is None or what in meanings)
        )
