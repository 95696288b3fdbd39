"""Logs of episodes."""

import atexit
import shutil
import tempfile

from envkit.wrappers.log_episodes import LogEpisodes
from tests.wrappers.case import Case
from tests.wrappers.environments import ALL

_FOLDER = tempfile.mkdtemp()
atexit.register(shutil.rmtree, _FOLDER, ignore_errors=True)


def logged(env):
    return LogEpisodes(env, tempfile.mkdtemp(dir=_FOLDER))


CASES = [Case("log_episodes", logged, ALL)]
