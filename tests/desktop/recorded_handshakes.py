"""Handshakes of genuine ends, as a proxy between them has recorded them.

The servers are Xvnc 1.12 and x11vnc 0.9.16 with `-rfbversion`, and their client is
xtigervncviewer 1.12; vncdotool 1.4.2 and asyncvnc 1.3.0 are clients of Xvnc. Each
recording ends with the last byte of the handshake.
"""

from __future__ import annotations

from typing import NamedTuple


class Recorded(NamedTuple):
    password: str | None
    version: tuple[int, int]
    name: str
    server: bytes
    client: bytes


RECORDED = {
    "TigerVNC 3.8": Recorded(
        None,
        (3, 8),
        "root@vm",
        bytes.fromhex(
            "524642203030332e3030380a010100000000014000f02018000100ff00ff00ff10080000"
            "000000000007726f6f7440766d"
        ),
        bytes.fromhex("524642203030332e3030380a0100"),
    ),
    "TigerVNC 3.8 with a password": Recorded(
        "secret",
        (3, 8),
        "root@vm",
        bytes.fromhex(
            "524642203030332e3030380a0102eab020b1c47c838a50f676f1f83bd216000000000140"
            "00f02018000100ff00ff00ff10080000000000000007726f6f7440766d"
        ),
        bytes.fromhex("524642203030332e3030380a02fa4c9af48ddfa35e03293b336320169b00"),
    ),
    "TigerVNC 3.8 refusing a password": Recorded(
        "wrong",
        (3, 8),
        "",
        bytes.fromhex(
            "524642203030332e3030380a01022ed819d6ba8061b70794afbab7bb564e000000010000"
            "001641757468656e7469636174696f6e206661696c757265"
        ),
        bytes.fromhex("524642203030332e3030380a0253eb88721c6a8944501c52a03342e681"),
    ),
    "x11vnc 3.3": Recorded(
        None,
        (3, 3),
        "vm:0",
        bytes.fromhex(
            "524642203030332e3030330a00000001014000f0201800ff00ff00ff00ff100800000000"
            "00000004766d3a30"
        ),
        bytes.fromhex("524642203030332e3030330a00"),
    ),
    "x11vnc 3.3 with a password": Recorded(
        "secret",
        (3, 3),
        "vm:0",
        bytes.fromhex(
            "524642203030332e3030330a00000002bbeee76c43ade3e4b00186790afe722900000000"
            "014000f0201800ff00ff00ff00ff10080000000000000004766d3a30"
        ),
        bytes.fromhex("524642203030332e3030330a67679a54cc8b618c0788ffe8026d8ff600"),
    ),
    "x11vnc 3.7": Recorded(
        None,
        (3, 7),
        "vm:0",
        bytes.fromhex(
            "524642203030332e3030370a0101014000f0201800ff00ff00ff00ff1008000000000000"
            "0004766d3a30"
        ),
        bytes.fromhex("524642203030332e3030370a0100"),
    ),
    "x11vnc 3.7 with a password": Recorded(
        "secret",
        (3, 7),
        "vm:0",
        bytes.fromhex(
            "524642203030332e3030370a010245f32b355428033f6a55263d0a93d7d2000000000140"
            "00f0201800ff00ff00ff00ff10080000000000000004766d3a30"
        ),
        bytes.fromhex("524642203030332e3030370a025a37adbd2bb018ed771f70c51e2e480e00"),
    ),
    "x11vnc 3.8": Recorded(
        None,
        (3, 8),
        "vm:0",
        bytes.fromhex(
            "524642203030332e3030380a010100000000014000f0201800ff00ff00ff00ff10080000"
            "000000000004766d3a30"
        ),
        bytes.fromhex("524642203030332e3030380a0100"),
    ),
    "x11vnc 3.8 with a password": Recorded(
        "secret",
        (3, 8),
        "vm:0",
        bytes.fromhex(
            "524642203030332e3030380a010268ac139c0fceadfcb36ffec9028bb827000000000140"
            "00f0201800ff00ff00ff00ff10080000000000000004766d3a30"
        ),
        bytes.fromhex("524642203030332e3030380a02f5203d96dacf9ce0cda131dd622e904600"),
    ),
    "vncdotool 3.8": Recorded(
        None,
        (3, 8),
        "root@vm",
        bytes.fromhex(
            "524642203030332e3030380a010100000000014000f02018000100ff00ff00ff10080000"
            "000000000007726f6f7440766d"
        ),
        bytes.fromhex("524642203030332e3030380a0101"),
    ),
    "asyncvnc 3.8": Recorded(
        None,
        (3, 8),
        "root@vm",
        bytes.fromhex(
            "524642203030332e3030380a010100000000014000f02018000100ff00ff00ff10080000"
            "000000000007726f6f7440766d"
        ),
        bytes.fromhex("524642203030332e3030380a0101"),
    ),
    "vncdotool 3.8 with a password": Recorded(
        "secret",
        (3, 8),
        "root@vm",
        bytes.fromhex(
            "524642203030332e3030380a0102fcef35eb4ba792e01445cd0b5d66ce0a000000000140"
            "00f02018000100ff00ff00ff10080000000000000007726f6f7440766d"
        ),
        bytes.fromhex("524642203030332e3030380a025c185784d3d0f59aa31982b7bc35af3e01"),
    ),
    "asyncvnc 3.8 with a password": Recorded(
        "secret",
        (3, 8),
        "root@vm",
        bytes.fromhex(
            "524642203030332e3030380a0102c0f4c5e2751b8cca4dc82cd55f539d4e000000000140"
            "00f02018000100ff00ff00ff10080000000000000007726f6f7440766d"
        ),
        bytes.fromhex("524642203030332e3030380a02e20663339112a1b22aa2e35b355ceb4b01"),
    ),
}
