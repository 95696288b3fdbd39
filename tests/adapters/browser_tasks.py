"""Tasks in a browser, with pages of their own."""

from __future__ import annotations

from typing import Any

from browsergym.core.registration import register_task
from browsergym.core.task import AbstractBrowserTask

from envkit.adapters.browsergym.suite import load

PAGE = """
<title>Two buttons</title>
<button onclick="document.title = 'pressed'">Good</button>
<button onclick="while (true) {}">Endless</button>
"""


class Buttons(AbstractBrowserTask):
    """Asks for a press of the first button; the second one never returns."""

    @classmethod
    def get_task_id(cls) -> str:
        return "envkit.buttons"

    def __init__(self, seed: int, goal: str = "Press Good.") -> None:
        super().__init__(seed)
        self.viewport = {"width": 200, "height": 100}
        self.slow_mo = 0
        self.timeout = 60_000  # ms
        self._goal = goal

    def setup(self, page: Any) -> tuple[str, dict[str, Any]]:
        page.set_content(PAGE)
        return self._goal, {"drawn": int(self.random.randint(1000))}

    def validate(self, page: Any, _: Any) -> tuple[float, bool, str, dict[str, Any]]:
        is_pressed = page.title() == "pressed"
        return float(is_pressed), is_pressed, "", {}


def make_buttons(**kwargs: Any) -> Any:
    register_task(Buttons.get_task_id(), Buttons)
    return load("envkit.buttons", pre_observation_delay=0.0, **kwargs)
