"""BrowserGym: tasks in web pages, including MiniWoB++."""

from envkit.extend import Scheme, lazy_names

# A dependency of its Playwright has no wheels for Python 3.13. The package miniwob has
# the pages of MiniWoB++.
SCHEME = Scheme(
    "envkit.adapters.browsergym.suite:load",
    title="BrowserGym, MiniWoB++",
    example="miniwob.click-test",
    page="adapters/browsergym",
    package="browsergym",
    extra="browsergym",
    requires=(
        "browsergym-core>=0.14; python_version < '3.13'",
        "browsergym-miniwob>=0.14; python_version < '3.13'",
        "gymnasium>=1.0",
        "miniwob>=1.1",
    ),
    lister="envkit.adapters.browsergym.suite:names",
    is_alone=True,
)

__getattr__, __dir__ = lazy_names(
    __name__,
    dict.fromkeys(
        ["BrowserGymWrapper", "load", "names"], "envkit.adapters.browsergym.suite"
    ),
)
