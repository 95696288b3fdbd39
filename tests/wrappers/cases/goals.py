"""A wrapper that gives episodes a goal."""

from typing import Any

from envkit.wrappers.goals import GoalReplayEnvWrapper
from tests.wrappers.case import Case
from tests.wrappers.environments import ENVIRONMENTS


class BackToTheStart(GoalReplayEnvWrapper):
    """Shows, beside each observation, the first of its episode."""

    def observation_spec(self) -> Any:
        spec = self.wrapped_env().observation_spec()
        return {"goal": spec, "now": spec}

    def get_goal_from_trajectory(self, trajectory: Any) -> Any:
        return trajectory.observation

    def get_trajectory_with_goal(self, trajectory: Any, goal: Any) -> Any:
        observation = {"goal": goal, "now": trajectory.observation}
        return trajectory._replace(observation=observation)


CASES = [Case("goal_replay", BackToTheStart, tuple(ENVIRONMENTS))]
