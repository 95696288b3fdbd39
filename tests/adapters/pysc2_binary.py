"""What answers PySC2's own environment in tests, in place of the game."""

from __future__ import annotations

import types

__all__ = ["Binary"]


class Binary:
    """Stands where PySC2 looks for the game, and remembers what the game was asked."""

    def __init__(self, *, won_after=None):
        """Takes after how many steps of the game the first player has won."""
        self.won_after = won_after
        self.created = []
        self.sent = []
        self.quits = 0

    def start(self, **kwargs):
        """Starts the game, as PySC2's run configurations do."""
        return types.SimpleNamespace(controller=_Controller(self), close=lambda: None)

    def map_data(self, path, players):
        """Reads a map."""
        return b""


class _Controller:
    """The connection to the game of one player."""

    status_ended = False

    def __init__(self, binary):
        self._binary = binary
        self._loop = 0

    def create_game(self, request):
        self._binary.created.append(request)

    def join_game(self, request):
        self._interface = request.options

    def restart(self):
        self._loop = 0

    def game_info(self):
        from s2clientprotocol import common_pb2, raw_pb2, sc2api_pb2

        player = sc2api_pb2.PlayerInfo(player_id=1, race_requested=common_pb2.Terran)
        size = common_pb2.Size2DI(x=64, y=64)
        return sc2api_pb2.ResponseGameInfo(
            options=self._interface,
            player_info=[player],
            start_raw=raw_pb2.StartRaw(map_size=size),
        )

    def observe(self, target_game_loop=0):
        from pysc2.lib import features
        from pysc2.tests import dummy_observation
        from s2clientprotocol import sc2api_pb2

        spec = features.features_from_game_info(
            self.game_info(),
            features.parse_agent_interface_format(
                feature_screen=32, feature_minimap=16
            ),
        ).observation_spec()
        answer = dummy_observation.Builder(spec).game_loop(self._loop).build()
        if self._binary.won_after is not None and self._loop >= self._binary.won_after:
            answer.player_result.add(player_id=1, result=sc2api_pb2.Victory)
        return answer

    def actions(self, request):
        self._binary.sent.extend(request.actions)

    def step(self, count):
        self._loop += count

    def quit(self):
        self._binary.quits += 1
