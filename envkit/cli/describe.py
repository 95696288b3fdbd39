"""`envkit describe TARGET`: shows an environment's specs and abilities."""

from __future__ import annotations

import argparse
import math
import numbers
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from envkit import nest
from envkit.async_environment import AsyncEnvironment
from envkit.cli.output import error_text, print_trimmed, stdout_on_stderr
from envkit.cli.target import (
    Closing,
    add_seed,
    add_target,
    make_rendering,
    make_target,
    target_arguments,
)
from envkit.cli.terminal import add_json, print_json, terminal
from envkit.nest import is_nested, step_into
from envkit.provenance import plain_arguments
from envkit.specs.environment_spec import EnvironmentSpec, info_spec_of
from envkit.time_step import AutoReset

__all__ = [
    "EXAMPLE",
    "add_arguments",
    "bare_path",
    "bounds_of",
    "children",
    "facts_of",
    "info_text",
    "layers_of",
    "leaf_text",
    "limit_of",
    "plain_leaves",
    "run",
    "short_text",
    "specs_of",
]

EXAMPLE = "envkit describe gymnasium:CartPole-v1"

_FINE = {"possible": True}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command."""
    add_target(parser)
    add_seed(parser, "the environment's seed", 0)
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Makes an environment, examines it, and shows the facts."""
    with stdout_on_stderr():
        with Closing(make_target(arguments)) as env:
            specs, facts = specs_of(env), facts_of(env, arguments.seed)
        if not facts.get("render", _FINE)["possible"]:
            facts["render"] = _render_if_asked(arguments) or facts["render"]
    if arguments.json:
        known = plain_arguments(target_arguments(arguments))
        print_json({"target": arguments.target, "arguments": known, **facts})
        return 0
    print_trimmed(
        terminal(), _tree(_title(facts, arguments.target), specs, facts), "",
        _table(facts),
    )  # fmt: skip
    return 0


def _render_if_asked(arguments: argparse.Namespace) -> dict[str, Any] | None:
    """Returns facts about a picture if the constructor takes a render mode."""
    given = target_arguments(arguments)
    if "render_mode" in given:
        return None
    with Closing(make_rendering(arguments.target, given)) as env:
        mode = getattr(env, "render_mode", None)
        if mode is None:
            return None
        env.reset()
        return {**_rendered(env), "render_mode": mode}


def _title(facts: dict[str, Any], target: str) -> str:
    """Returns an environment's id; for a pool, its environments'."""
    rows = facts["provenance"].get("environments", ())
    ids = dict.fromkeys(str(one["id"]) for one in rows if one["id"] is not None)
    return ", ".join(ids) or facts["id"] or target


def _tree(title: str, specs: dict[str, Any], facts: dict[str, Any]) -> Tree:

    tree = Tree(Text(title, style="bold"))
    for part, spec in specs.items():
        _add(tree, part, spec)
    info = facts.get("info", {"possible": False})
    if "info" not in specs and info["possible"]:
        branch = tree.add(_named("info", "" if info["holds"] else "empty"))
        for leaf in info["holds"]:
            branch.add(_named(bare_path(leaf["path"]), leaf["what"]))
    return tree


def _add(tree: Tree, name: str, spec: Any) -> None:
    if not is_nested(spec):
        tree.add(_named(name, leaf_text(spec)))
        return
    parts = children(spec)
    branch = tree.add(_named(name, "" if parts else "nothing"))
    for child_name, child in parts:
        _add(branch, child_name, child)


def _named(name: str, text: str) -> Text:
    return Text.assemble((name, "cyan"), "  " if name and text else "", text)


def _table(facts: dict[str, Any]) -> Table:
    table = Table.grid(padding=(0, 3, 0, 0))
    table.add_column(no_wrap=True, style="cyan")
    table.add_column(overflow="fold")
    limit = facts["episode"]["max_steps"]
    rows = {
        "rows": _rows(facts["batch"]),
        "episodes": "no known limit" if limit is None else f"at most {limit} steps",
        "render": _picture(facts.get("render")),
        "seed": _possible(facts["seed"]),
        "state": _possible(facts.get("state")),
        "reset": None if facts.get("reset", _FINE)["possible"] else facts["reset"],
        **_origin(facts),
    }
    for name, text in rows.items():
        if text:
            table.add_row(name, Text(text if isinstance(text, str) else text["reason"]))
    return table


def _rows(batch: dict[str, Any]) -> str:
    if batch["kind"] == "single":
        return "a single environment"
    if batch["kind"] == "asynchronous":
        return f"{batch['rows']}, each stepped at its own speed"
    can = [
        text
        for name, text in (
            ("resets_rows", "reset(mask)"),
            ("holds_rows", "step(action, mask)"),
        )
        if batch[name]
    ]
    masks = f"; {' and '.join(can)}" if can else "; only all at once"
    return f"{batch['rows']}, autoreset {batch['autoreset']}{masks}"


def _picture(render: dict[str, Any] | None) -> str:
    if render is None or not render["possible"]:
        return _possible(render)
    mode = render.get("render_mode")
    asked = "" if mode is None else f", made with render_mode={mode!r}"
    return f"{render['dtype']} {tuple(render['shape'])}{asked}"


def _possible(answer: dict[str, Any] | None) -> str:
    if answer is None:
        return ""
    return "yes" if answer["possible"] else f"no: {answer['reason']}"


def _origin(facts: dict[str, Any]) -> dict[str, str]:
    """Returns an environment's provenance in words."""
    known = facts["provenance"]
    version = "" if facts["version"] is None else str(facts["version"])
    packages = {"envkit": known.get("envkit"), **known.get("packages", {})}
    arguments = known.get("arguments")
    return {
        "version": version,
        "class": facts["class"],
        "arguments": "unknown"
        if arguments is None
        else ", ".join(f"{name}={value!r}" for name, value in arguments.items()),
        "made of": " around ".join(facts["layers"]),
        "packages": ", ".join(f"{name} {found}" for name, found in packages.items()),
        "python": str(known.get("python", "")),
    }


# The maximum number of leaves in a short text.
_MOST = 4


def short_text(spec: Any) -> str:
    """Describes a nest of specs in a few words.

    Example:
        >>> from envkit import make
        >>> env = make("CartPole")
        >>> short_text(env.observation_spec()), short_text(env.action_spec())
        ('float32 (4,)', 'int64 0…1')
        >>> short_text({"camera": env.observation_spec(), "lap": env.action_spec()})
        'camera: float32 (4,), lap: int64 0…1'
    """
    if not is_nested(spec):
        return leaf_text(spec, brief=True)
    leaves = nest.flatten_with_paths(spec)
    if not leaves:
        return "nothing"
    texts = [
        f"{bare_path(path)}: {leaf_text(leaf, brief=True)}"
        for path, leaf in leaves[:_MOST]
    ]
    more = len(leaves) - _MOST
    return ", ".join(texts) + (f" and {more} more" if more > 0 else "")


def leaf_text(spec: Any, *, brief: bool = False) -> str:
    """Describes one spec: its dtype, shape and bounds, if any.

    Args:
        spec: The spec.
        brief: Whether to omit bounds that differ between elements.

    Example:
        >>> from envkit import ArraySpec, BoundedArraySpec
        >>> leaf_text(ArraySpec((), np.float32)), leaf_text(ArraySpec((), "<U3"))
        ('float32', 'text of 3 characters')
        >>> leaf_text(BoundedArraySpec((2,), np.float32, -1, [0, 1]))
        'float32 (2,) -1…[0, 1]'
        >>> leaf_text(BoundedArraySpec((8, 8, 3), np.uint8))
        'uint8 (8, 8, 3)'
    """
    shape = tuple(spec.shape)
    low, high = bounds_of(spec)
    differ = isinstance(low, list) or isinstance(high, list)
    is_bounded = low is not None or high is not None
    bounds = ""
    if is_bounded and not (brief and differ):
        bounds = f"{_edge(low, '-∞')}…{_edge(high, '∞')}"
    kind = getattr(spec, "kind", None)
    about = "" if kind is None else f"{kind!r:.60}"
    parts = [_dtype_text(spec.dtype), str(shape) if shape else "", bounds, about]
    return " ".join(filter(None, parts))


def bounds_of(spec: Any) -> tuple[Any, Any]:
    """Returns the bounds as plain numbers or nested lists; `None` for no bound.

    The limits of a dtype do not count as bounds, except for integers that are choices.

    Example:
        >>> from envkit import BoundedArraySpec
        >>> bounds_of(BoundedArraySpec((2,), np.float32, 0, None))
        (0.0, None)
    """
    low, high = getattr(spec, "minimum", None), getattr(spec, "maximum", None)
    if low is None or high is None or np.asarray(low).dtype.kind not in "iufb":
        return None, None
    low, high = np.asarray(low), np.asarray(high)
    limits: Any
    if low.dtype.kind == "f":
        limits = np.finfo(low.dtype)
    elif low.dtype.kind == "b":
        return None, None
    else:
        limits = np.iinfo(low.dtype)
        if np.all(low == limits.min) and np.all(high == limits.max):
            return None, None
    return _plain(low, limits.min), _plain(high, limits.max)


def plain_leaves(spec: Any) -> list[dict[str, Any]]:
    """Returns the leaves of a nest of specs as data that JSON can hold.

    Example:
        >>> from envkit import make
        >>> plain_leaves(make("CartPole").action_spec())[0]["maximum"]
        1
    """
    return [_plain_leaf(path, leaf) for path, leaf in nest.flatten_with_paths(spec)]


def children(spec: Any) -> list[tuple[str, Any]]:
    """Returns the parts of a nest by name."""
    return [(bare_path(path), child) for path, child in step_into(spec, "")]


def bare_path(path: str) -> str:
    """Writes a path in a short form for people.

    Example:
        >>> bare_path("['camera'][0]")
        'camera.0'
    """
    text = path.replace("']['", ".").replace("['", ".").replace("']", "")
    return text.replace("[", ".").replace("]", "").strip(".")


def _plain_leaf(path: str, spec: Any) -> dict[str, Any]:
    low, high = bounds_of(spec)
    name = getattr(spec, "name", None)
    return {
        "path": path,
        "spec": type(spec).__name__,
        "shape": [None if size is None else int(size) for size in spec.shape],
        "dtype": _dtype_name(spec.dtype),
        "minimum": low,
        "maximum": high,
        "name": name if isinstance(name, str) else None,
    }


def _plain(bound: Any, limit: Any) -> Any:
    if bound.size and (bound == bound.flat[0]).all():
        bound = bound.flat[0]
    return _numbers(bound, limit)


def _numbers(bound: Any, limit: Any) -> Any:
    if bound.ndim:
        return [_numbers(part, limit) for part in bound]
    if bound.dtype.kind != "f":
        return int(bound)
    # Through text: as a Python float, a float32 of 0.7 is 0.699999988079071.
    return None if bound == limit or not np.isfinite(bound) else float(str(bound[()]))


def _edge(bound: Any, infinity: str) -> str:
    if not isinstance(bound, list):
        return _short_number(bound, infinity)
    flat = np.ravel(np.array(bound, object)).tolist()
    if len(flat) <= 4:
        return f"[{', '.join(_short_number(part, infinity) for part in flat)}]"
    known = [part for part in flat if part is not None]
    return f"[{min(known):g} to {max(known):g}]" if known else infinity


def _short_number(bound: Any, infinity: str) -> str:
    if bound is None:
        return infinity
    return f"{bound:g}" if isinstance(bound, float) else str(bound)


def _dtype_text(dtype: Any) -> str:
    if isinstance(dtype, np.dtype) and dtype.kind in "US":
        size = dtype.itemsize // (4 if dtype.kind == "U" else 1)
        what = "characters" if dtype.kind == "U" else "bytes"
        return f"text of {size} {what}" if size else "text"
    return _dtype_name(dtype)


def _dtype_name(dtype: Any) -> str:
    # TensorFlow's dtypes have a name.
    return str(getattr(dtype, "name", None) or dtype)


# The names under which wrappers and environments keep the maximum length of episodes.
# The last is MiniGrid's.
_LIMITS = ("duration", "max_episode_steps", "fix_length", "max_steps")


def specs_of(env: Any) -> dict[str, Any]:
    """Returns the nests of specs by the name of their part."""
    specs: dict[str, Any] = EnvironmentSpec.of(env)._asdict()
    declared = info_spec_of(env)
    return {**specs, "info": declared} if declared else specs


def facts_of(env: Any, seed: int = 0) -> dict[str, Any]:
    """Examines an environment, which is seeded and reset for that.

    Returns:
        Data that JSON can hold. If something is not possible, `reason` says why.
    """
    seeded = _asked(lambda: env.seed(seed))
    provenance: dict[str, Any] = getattr(env, "provenance", dict)()
    core = _layers(env)[-1]
    facts = {
        "id": provenance.get("id"),
        "version": provenance.get("version"),
        "class": f"{type(core).__module__}:{type(core).__qualname__}",
        "layers": layers_of(env),
        "batch": _batch(env),
        "specs": {part: plain_leaves(spec) for part, spec in specs_of(env).items()},
        "episode": {"max_steps": limit_of(env)},
        "seed": seeded,
    }
    if not isinstance(env, AsyncEnvironment):
        facts["reset"] = _asked(lambda: env.reset())
        facts["info"] = _asked(lambda: env.get_info(), _info)
        facts["render"] = _rendered(env)
        facts["state"] = _asked(lambda: env.get_state())
    return {**facts, "provenance": provenance}


def limit_of(env: Any) -> int | None:
    """Returns the maximum number of steps of an episode, if there is a limit.

    A batch has the limit of its row with the longest episodes.
    """
    rows = getattr(env, "envs", None) if not hasattr(env, "access") else None
    if isinstance(rows, list | tuple) and rows:
        return _largest([limit_of(row) for row in rows])
    told = [
        *(_attribute_of(env, name) for name in _LIMITS),
        getattr(getattr(env, "spec", None), "max_episode_steps", None),
        # Private in dm_control; infinity means no limit.
        getattr(getattr(env, "dm_env", None), "_step_limit", None),
    ]
    return min((limit for limit in map(_as_limit, told) if limit), default=None)


def _attribute_of(env: Any, name: str) -> Any:
    """Returns an environment's attribute, or its largest value in a pool."""
    value = getattr(env, name, None)
    if value is not None or not hasattr(env, "access"):
        return value
    try:
        values = env.access(name)
    except Exception:  # workers may raise anything
        return None
    values = values if isinstance(values, list) else [values]
    return _largest([_as_limit(value) for value in values])


def _largest(limits: list[int | None]) -> int | None:
    """Returns the largest limit, or `None` if some episode has none."""
    known = [limit for limit in limits if limit is not None]
    return max(known, default=None) if len(known) == len(limits) else None


def _as_limit(value: Any) -> int | None:
    is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    return int(float(value)) if is_number and math.isfinite(value) else None


def layers_of(env: Any) -> list[str]:
    """Returns the classes of an environment and of those it wraps, outermost first.

    Example:
        >>> from envkit import make
        >>> from envkit.wrappers import TimeLimit
        >>> layers_of(TimeLimit(make("Catch"), 5))
        ['TimeLimit', 'Catch']
    """
    return [type(layer).__name__ for layer in _layers(env)]


def _layers(env: Any) -> list[Any]:
    layers = [env]
    while callable(getattr(type(layers[-1]), "wrapped_env", None)):
        layers.append(layers[-1].wrapped_env())
    if hasattr(type(layers[-1]), "gym"):
        layers.append(layers[-1].gym.unwrapped)
    return layers


def info_text(leaf: Any) -> str:
    """Describes a leaf of an info in a few words.

    Example:
        >>> info_text(np.float32(3)), info_text("lost"), info_text(np.zeros(2))
        ('float32', 'str', 'float64 (2,)')
    """
    if isinstance(leaf, np.ndarray | np.generic):
        return " ".join([str(leaf.dtype), *([str(leaf.shape)] if leaf.shape else [])])
    return type(leaf).__name__


def _batch(env: Any) -> dict[str, Any]:
    if isinstance(env, AsyncEnvironment):
        return {"kind": "asynchronous", "rows": env.num_envs}
    if not env.batched:
        return {"kind": "single", "rows": None}
    return {
        "kind": "batch",
        "rows": int(env.batch_size),
        "autoreset": AutoReset.kept_by(env).value,
        "resets_rows": bool(getattr(env, "resets_rows", False)),
        "holds_rows": bool(getattr(env, "holds_rows", False)),
    }


def _info(value: Any) -> dict[str, Any]:
    """Returns facts about an info."""
    if isinstance(value, Mapping) and not value:
        return {"holds": []}
    try:
        leaves = nest.flatten_with_paths(value)
    except Exception:  # its keys may be anything
        leaves = [("", value)]
    return {"holds": [{"path": path, "what": info_text(leaf)} for path, leaf in leaves]}


def _rendered(env: Any) -> dict[str, Any]:
    def facts(picture: Any) -> dict[str, Any]:
        picture = np.asarray(picture)
        return {"shape": list(picture.shape), "dtype": str(picture.dtype)}

    return _asked(lambda: env.render(), facts)


def _asked(
    call: Callable[[], Any],
    facts: Callable[[Any], dict[str, Any]] = lambda answer: {},
) -> dict[str, Any]:
    """Returns facts about a call's answer, or the reason why it is not possible."""
    try:
        return {"possible": True, **facts(call())}
    except (Exception, SystemExit) as error:  # its code may raise anything
        return {"possible": False, "reason": error_text(error)}
