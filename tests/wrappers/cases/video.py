"""Filming episodes."""

import atexit
import shutil
import tempfile

from envkit.wrappers.video import RecordVideo
from tests.wrappers.case import Case
from tests.wrappers.environments import ALL

_FOLDER = tempfile.mkdtemp()
atexit.register(shutil.rmtree, _FOLDER, ignore_errors=True)


def filmed(env, **options):
    return RecordVideo(env, tempfile.mkdtemp(dir=_FOLDER), format="gif", **options)


CASES = [
    # Few pictures of many episodes: each takes a millisecond.
    Case("record_video", lambda env: filmed(env, every=5, video_length=2), ALL),
    Case("record_video_whole", filmed, ("drive",)),
    Case(
        "record_video_grid",
        lambda env: filmed(env, every=2, layout="grid" if env.batched else "episode"),
        ("drive",),
    ),
]
