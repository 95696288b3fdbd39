"""A body of dm_control that takes no time to be made, unlike those of the suite."""

from __future__ import annotations

from typing import Any

import numpy as np

from envkit import PyEnvironment
from envkit.adapters import suite_dm_control

BODY = """
<mujoco>
  <option timestep="0.01"/>
  <worldbody>
    <body name="bead">
      <joint name="wire" type="slide" axis="1 0 0" damping="0.1"/>
      <geom size="0.1" mass="1"/>
    </body>
  </worldbody>
  <actuator>
    <motor name="push" joint="wire" ctrlrange="-1 1"/>
  </actuator>
</mujoco>
"""


def bead_on_a_wire(random: Any = None) -> PyEnvironment:
    """Makes a bead that is to be pushed to the middle of a wire."""
    from dm_control import mujoco
    from dm_control.rl import control
    from dm_control.suite import base

    class Task(base.Task):
        def initialize_episode(self, physics: Any) -> None:
            physics.data.qpos[:] = self.random.uniform(-1.0, 1.0)
            super().initialize_episode(physics)

        def get_observation(self, physics: Any) -> dict[str, Any]:
            return {"place": physics.position(), "speed": physics.velocity()}

        def get_reward(self, physics: Any) -> float:
            return float(np.exp(-abs(physics.data.qpos[0])))

    physics = mujoco.Physics.from_xml_string(BODY)
    return suite_dm_control.wrap_env(
        control.Environment(physics, Task(random), time_limit=0.08)
    )
