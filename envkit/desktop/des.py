"""DES (FIPS 46-3), with which VNC viewers prove that they know a password."""

from __future__ import annotations

__all__ = ["answer"]


def answer(challenge: bytes, password: str) -> bytes:
    """Returns the proof that a viewer knows a password, of which 8 characters count.

    It is the challenge, encrypted with DES; the key is the password with the bits of
    each byte reversed. This protects little: use it where the network is safe.

    Example:
        >>> answer(bytes(range(16)), "secret").hex()
        'ee22539f33a5983ec12f9c2edbc995dd'
    """
    key = password.encode("latin-1", "replace")[:8].ljust(8, b"\0")
    turned = bytes(int(f"{byte:08b}"[::-1], 2) for byte in key)
    keys = _round_keys(int.from_bytes(turned, "big"))
    blocks = (challenge[at : at + 8] for at in range(0, len(challenge), 8))
    return b"".join(
        _encrypted(int.from_bytes(block, "big"), keys).to_bytes(8, "big")
        for block in blocks
    )


def _encrypted(block: int, keys: list[int]) -> int:
    """Encrypts a block of 64 bits."""
    block = _picked(block, 64, _INITIAL)
    left, right = block >> 32, block & 0xFFFFFFFF
    for key in keys:
        mixed = _picked(right, 32, _EXPANSION) ^ key
        chosen = 0
        for number, box in enumerate(_BOXES):
            six = mixed >> (42 - 6 * number) & 0x3F
            row, column = (six >> 4 & 2) | (six & 1), six >> 1 & 0xF
            chosen = chosen << 4 | int(box[16 * row + column], 16)
        left, right = right, left ^ _picked(chosen, 32, _PERMUTATION)
    return _picked(right << 32 | left, 64, _FINAL)


def _round_keys(key: int) -> list[int]:
    halves = _picked(key, 64, _CHOICE_1)
    left, right = halves >> 28, halves & 0xFFFFFFF
    keys = []
    for shift in _SHIFTS:
        left, right = (
            (half << shift | half >> (28 - shift)) & 0xFFFFFFF for half in (left, right)
        )
        keys.append(_picked(left << 28 | right, 56, _CHOICE_2))
    return keys


def _picked(value: int, size: int, places: list[int]) -> int:
    """Returns the bits at these places, counted from 1 at the highest bit."""
    picked = 0
    for place in places:
        picked = picked << 1 | value >> (size - place) & 1
    return picked


def _rows(starts: list[int]) -> list[int]:
    """Returns rows of 8 numbers: each start, counted down in steps of 8."""
    return [start - 8 * step for start in starts for step in range(8)]


_INITIAL = _rows([58, 60, 62, 64, 57, 59, 61, 63])
_FINAL = [_INITIAL.index(place) + 1 for place in range(1, 65)]
_EXPANSION = [
    (4 * group + step - 1) % 32 + 1 for group in range(8) for step in range(6)
]
_PERMUTATION = [
    *(16, 7, 20, 21, 29, 12, 28, 17, 1, 15, 23, 26, 5, 18, 31, 10),
    *(2, 8, 24, 14, 32, 27, 3, 9, 19, 13, 30, 6, 22, 11, 4, 25),
]
_CHOICE_1 = [
    *(_rows([57, 58, 59, 60])[:28]),
    *(_rows([63, 62, 61])),
    *(28, 20, 12, 4),
]
_CHOICE_2 = [
    *(14, 17, 11, 24, 1, 5, 3, 28, 15, 6, 21, 10, 23, 19, 12, 4, 26, 8, 16, 7, 27, 20),
    *(13, 2, 41, 52, 31, 37, 47, 55, 30, 40, 51, 45, 33, 48, 44, 49, 39, 56, 34, 53),
    *(46, 42, 50, 36, 29, 32),
]
_SHIFTS = [1, 1, 2, 2, 2, 2, 2, 2, 1, 2, 2, 2, 2, 2, 2, 1]
# Each box has four rows of sixteen numbers.
_BOXES = [
    "e4d12fb83a6c59070f74e2d1a6cb953841e8d62bfc973a50fc8249175b3ea06d",
    "f18e6b34972dc05a3d47f28ec01a69b50e7ba4d158c6932fd8a13f42b67c05e9",
    "a09e63f51dc7b428d709346a285ecbf1d6498f30b12c5ae71ad069874fe3b52c",
    "7de3069a1285bc4fd8b56f03472c1ae9a690cb7df13e52843f06a1d8945bc72e",
    "2c417ab6853fd0e9eb2c47d150fa3986421bad78f9c5630eb8c71e2d6f09a453",
    "c1af92680d34e75baf427c9561de0b389ef528c3704a1db6432c95fabe17608d",
    "4b2ef08d3c975a61d0b7491ae35c2f8614bdc37eaf6805926bd814a7950fe23c",
    "d2846fb1a93e50c71fd8a374c56b0e927b419ce206adf35821e74a8dfc90356b",
]
