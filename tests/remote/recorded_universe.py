"""Traffic of the genuine Universe, as a proxy between the ends has recorded it.

universe 0.21.3 with go-vncdriver 0.4.19 plays `tests.remote.pad:Pad`, served by `envkit
serve --universe`: `CLIENT` has all that its rewarder's end says, and what it was told
but for runs of equal messages; `DRIVER` has what its desktop's end says up to its 16th
key, without runs of requests for updates.

`SERVER` is the rewarder of universe 0.21.3, `universe.rewarder.remote`, with five steps
an episode, a late reward after each, and envkit's client; `REFUSALS` are what it says
to a second client, and to a wrong password.
"""

from __future__ import annotations

import json
from pathlib import Path

_LINES = [
    json.loads(line)
    for line in Path(__file__).with_suffix(".jsonl").read_text().splitlines()
]


def _said(which: str) -> list[tuple[str, str]]:
    """Returns who says what."""
    return [(end, text) for recording, end, text in _LINES if recording == which]


CLIENT, SERVER = _said("client"), _said("server")
REFUSALS = [text for _, text in _said("refusal")]

# The password was "openai".
CHALLENGE = bytes.fromhex("a44f57e842675bc66542f75c8895f219")
DRIVER = bytes.fromhex(
    "524642203030332e3030380a02bc88429b396da6925f42169855d273f501000000002018"
    "000100ff00ff00ff0008100000000200000300000007fffffe32fffffd02030100000000"
    "0008000604010000000beef104000000000beef1040100000000ff510301000000000008"
    "0006040000000000ff510301000000000008000604010000000000200400000000000020"
    "0301000000000008000604010000000beef104000000000beef104010000000000200400"
    "0000000000200301000000000008000604010000000beef104000000000beef104010000"
    "0000002004000000000000200301000000000008000604010000000beef104000000000b"
    "eef1"
)
