"""Finding out what an adapter takes and gives: declared, counted or inferred."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from envkit.adapters.env_adapters.author import Author, author_of
from envkit.adapters.env_adapters.inference import Inferred, infer
from envkit.adapters.env_adapters.legality import LegalActions
from envkit.adapters.env_adapters.menu import action_converter, numbered
from envkit.adapters.env_adapters.plan import (
    Plan,
    constants,
    copier,
    declared_leaves,
    reader,
)
from envkit.adapters.env_adapters.probing import probe
from envkit.adapters.env_adapters.returned import step_reader
from envkit.adapters.gym_environments import as_discount
from envkit.specs.array_spec import BoundedArraySpec, is_discrete
from envkit.specs.environment_spec import checked_spec
from envkit.time_step import REWARD_SPEC
from envkit.types import NestedSpec

if TYPE_CHECKING:
    from envkit.adapters.env_adapter import EnvAdapter

__all__ = ["action_spec_of", "count_actions", "make_plan"]


def count_actions(adapter: EnvAdapter, author: Author) -> int:
    """Returns how many actions there are, of an adapter that counts them."""
    spec = numbered(author.name, adapter.actions, adapter.num_actions)
    declared = None if spec else author.declared("action_spec")
    if _is_number_from_0(declared):
        spec = declared
    if spec is None and not author.started:
        author.start()  # It may know.
        spec = numbered(author.name, adapter.actions, adapter.num_actions)
    if spec is None and declared is not None:
        raise TypeError(
            f"{author.name} has actions that cannot be counted, as they are not one "
            f"integer from 0 on: {declared!r:.200}. Say how many there are: "
            "num_actions = 4."
        )
    if spec is None:
        raise TypeError(
            f"{author.name} does not say what actions there are. Declare a list of "
            "them, actions = [...], or how many there are, num_actions = 4, or the "
            "specs of an action, action_spec = BoundedArraySpec(...)."
        )
    return int(spec.maximum) + 1


def _is_number_from_0(spec: NestedSpec) -> bool:
    return (
        isinstance(spec, BoundedArraySpec)
        and spec.shape == ()
        and is_discrete(spec)
        and int(spec.minimum) == 0
    )


def action_spec_of(adapter: EnvAdapter, author: Author) -> NestedSpec:
    """Returns the specs of an action."""
    declared = author.declared("action_spec")
    if declared is not None:
        return declared
    return numbered(author.name, None, count_actions(adapter, author))


def make_plan(adapter: EnvAdapter, author: Author) -> Plan:
    """Returns what there is to know; where specs are inferred, an episode begins."""
    name, checked = author.name, adapter.checked
    to_action = action_converter(adapter.action_spec(), name, checked=checked)
    legal = _legal_actions(adapter, author)
    spec = author.declared("observation_spec")
    inferred = spec is None
    if inferred:
        spec, leaves = _infer(adapter, author, legal)
    else:
        leaves = declared_leaves(spec, checked=checked)
    to_observation = reader(name, "observation", spec, leaves)
    copied = copier(spec)
    if legal is not None and adapter.observe_legal_actions:
        spec = {"observation": spec, "legal_actions": legal.spec}
    reward_spec = checked_spec(adapter.reward_spec(), f"{name}.reward_spec is")
    discount_spec = checked_spec(adapter.discount_spec(), f"{name}.discount_spec is")
    rewards, discounts = (
        declared_leaves(declared, checked=checked)
        for declared in (reward_spec, discount_spec)
    )
    return Plan(
        observation_spec=spec,
        inferred=inferred,
        read_observation=to_observation,
        copied=copied,
        read_reward=reader(name, "reward", reward_spec, rewards),
        read_discount=reader(name, "discount", discount_spec, discounts),
        read_step=step_reader(name, adapter.step_returns),
        to_action=to_action,
        legal=legal,
        is_plain_reward=reward_spec is REWARD_SPEC,
        nothing=constants(reward_spec, 0.0),
        one=constants(discount_spec, 1.0),
        over=constants(discount_spec, 0.0),
        going_on=constants(discount_spec, as_discount(adapter.discount)),
    )


def _legal_actions(adapter: EnvAdapter, author: Author) -> LegalActions | None:
    if adapter.legal_actions is not None:
        return LegalActions(
            author.name, adapter.actions, count_actions(adapter, author)
        )
    if adapter.observe_legal_actions:
        raise TypeError(
            f"{author.name}.observe_legal_actions is set, and there is no method "
            "legal_actions(observation)."
        )
    return None


def _infer(adapter: EnvAdapter, author: Author, legal: LegalActions | None) -> Inferred:
    return infer(
        _observations(adapter, author, legal),
        name=author.name,
        floats=adapter.floats,
        text_length=adapter.text_length,
        max_lengths=adapter.max_lengths,
    )


def _observations(
    adapter: EnvAdapter, author: Author, legal: LegalActions | None
) -> list[Any]:
    if not adapter.probe_steps:
        return [author.first_observation()]
    if adapter.can_be_made_again:
        args, kwargs = author.arguments
        first = author.first_observation()
        with type(adapter)(*args, **kwargs) as other:
            return [first, *_probe(adapter, author_of(other), legal)]
    # There is only this one, whose episode and seed are then yet to come.
    seed = author.next_seed
    observations = _probe(adapter, author, legal)
    author.next_seed = seed
    return observations


def _probe(adapter: EnvAdapter, asked: Author, legal: LegalActions | None) -> list[Any]:
    """Looks at observations of an adapter like this one, or of itself."""
    read_step = step_reader(asked.name, adapter.step_returns)
    to_action = action_converter(adapter.action_spec(), asked.name, checked=False)
    return probe(
        asked.begin,
        lambda action: read_step(asked.ask("step", to_action(action))),
        adapter.action_spec(),
        steps=adapter.probe_steps,
        legal=asked.legal_actions if legal else None,
        mask_of=legal,
    )
