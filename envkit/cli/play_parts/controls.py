"""`Controls`: the keys for what is no action, which are never those of an action."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from envkit.cli.play_parts.key_names import key_text

__all__ = ["PLAYING", "WATCHING", "Controls"]

# What somebody wants, and the keys for it, the best first.
PLAYING: Mapping[str, Sequence[str]] = {
    "pause": ("space", "p", "tab"),
    "reset": ("r", "backspace"),
    "keys": ("?",),
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


class Controls:
    """The keys for what is no action.

    Example:
        >>> controls = Controls(PLAYING, taken={"space", "q"})
        >>> controls.of("p"), controls.of("space"), controls.of("esc")
        ('pause', None, 'quit')
        >>> controls.text()
        'p pause   r reset   ? keys   esc quit'
    """

    def __init__(
        self, wanted: Mapping[str, Sequence[str]], taken: Collection[str] = ()
    ) -> None:
        """Takes what is wanted, and the keys that mean something else."""
        self._keys = {
            what: [key for key in keys if key not in taken]
            for what, keys in wanted.items()
        }
        self._meaning = {key: what for what, keys in self._keys.items() for key in keys}

    def of(self, key: str) -> str | None:
        """Returns what somebody wants who presses a key; `None` if it is nothing."""
        return self._meaning.get(key)

    def text(self) -> str:
        """Returns the keys for people, one for each."""
        return "   ".join(
            f"{key_text(keys[0])} {what}" for what, keys in self._keys.items() if keys
        )
