"""Everything about the package is in pyproject.toml, except for its description.

That is the README with absolute links, because relative ones lead nowhere on a package
index.
"""

import re
from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).parent


def description() -> str:
    """Returns the README with links to the repository that pyproject.toml names."""
    project = (ROOT / "pyproject.toml").read_text("utf-8")
    (home,) = re.findall(r'^Repository = "(.+)"$', project, re.M)
    raw = home.replace("github.com", "raw.githubusercontent.com")

    def absolute(link: "re.Match[str]") -> str:
        start = f"{raw}/main" if link[1] else f"{home}/blob/main"
        return f"{link[1]}[{link[2]}]({start}/{link[3]})"

    readme = (ROOT / "README.md").read_text("utf-8")
    return re.sub(r"(!?)\[([^\]]*)\]\((?!https?:)([^)]+)\)", absolute, readme)


if __name__ == "__main__":
    setup(
        long_description=description(),
        long_description_content_type="text/markdown",
    )
