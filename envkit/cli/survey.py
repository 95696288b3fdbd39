"""Surveys the environments of each library, from the cache or in new processes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

from envkit.cli.findings import Findings, matches, specs_of
from envkit.cli.names_cache import NamesCache
from envkit.cli.output import error_text
from envkit.errors import EnvkitError
from envkit.extend import Plugins, scheme_named
from envkit.registry import registered

__all__ = ["built_in", "survey"]

_OWN = Plugins("envkit.environments", "environment")
_LISTERS = Plugins("envkit.names", "scheme")

# The maximum number of matches whose specs are shown by default.
FEW = 10

# Shows the progress of a survey.
_Watch = Callable[
    [Sequence[str]], contextlib.AbstractContextManager[Callable[[str], None]]
]


def survey(
    schemes: Sequence[str],
    pattern: str | None,
    *,
    specs: bool = False,
    debug: bool = False,
    refresh: bool = False,
    watch: _Watch = lambda schemes: contextlib.nullcontext(lambda scheme: None),
) -> list[Findings]:
    """Finds out what each library has, in the order of the schemes.

    A library is asked if its names are not in the cache. Environments are made only if
    few names match in all libraries, or all specs are wanted.

    Args:
        schemes: The libraries.
        pattern: The environments to make for their specs, if they are few.
        specs: Whether to make all of those.
        debug: Whether libraries' output goes to standard error.
        refresh: Whether to ask libraries even if their names are cached.
        watch: Called with the schemes to ask, if there are any. Its context yields a
            function that is called with each scheme that has answered.
    """
    cache = NamesCache()
    known = {scheme: _known_of(scheme, cache, refresh) for scheme in schemes}
    found = {scheme: facts for scheme, facts in known.items() if facts is not None}
    few = None if specs else FEW if pattern is not None and len(schemes) == 1 else 0
    unknown = [scheme for scheme in schemes if scheme not in found]
    if unknown:
        from envkit.cli.asking import ask  # processes and threads

        with watch(unknown) as answered:
            found.update(ask(unknown, pattern, few, debug, answered))
    counts = {scheme: _matches(found[scheme], pattern) for scheme in schemes}
    if specs or (pattern is not None and sum(counts.values()) <= FEW):
        told = unknown if few != 0 else []
        some = [scheme for scheme in schemes if counts[scheme] and scheme not in told]
        if some:
            from envkit.cli.asking import ask

            found.update(ask(some, pattern, None if specs else FEW, debug))
    return [found[scheme] for scheme in schemes]


def _known_of(scheme: str, cache: NamesCache, refresh: bool) -> Findings | None:
    """Returns what is known of a scheme; `None` if it has to be asked.

    A process for each scheme takes as long as everything else together.
    """
    try:
        found = scheme_named(scheme)
    except EnvkitError as error:  # the package that offers it is broken
        return Findings(scheme, broken=error_text(error))
    assert found is not None  # its name was found before
    if (missing := found.missing(f"The scheme {scheme!r}")) is not None:
        return Findings(
            scheme,
            missing=str(missing),
            package=missing.package,
            command=missing.command,
        )
    if found.address:
        return Findings(scheme, takes=f"{found.takes}: {scheme}:{found.address}")
    if found.lister is None and _LISTERS.find(scheme) is None:
        return Findings(scheme)
    answer = None if refresh else cache.kept(scheme)
    return None if answer is None else Findings(scheme, names=answer["names"])


def built_in(pattern: str | None, *, refresh: bool = False) -> list[dict[str, Any]]:
    """Returns envkit's own environments, with their specs."""
    names, cache = registered(), NamesCache()
    is_whole = sorted(_OWN.own()) == names  # nothing was registered in this process
    known = cache.kept(None) if is_whole and not refresh else None
    if known is None:
        wanted = [name for name in names if is_whole or matches(name, pattern)]
        known = {name: specs_of(name) for name in wanted}
        if is_whole:
            cache.keep(None, known)
    return [
        {"target": name, "scheme": None, **known[name]}
        for name in names
        if matches(name, pattern)
    ]


def _matches(found: Findings, pattern: str | None) -> int:
    names = found.names or ()
    return sum(matches(f"{found.scheme}:{name}", pattern) for name in names)
