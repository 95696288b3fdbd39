"""The documentation is complete; that its code runs, the root's conftest sees to."""

from __future__ import annotations

import pkgutil
import re
from pathlib import Path

import pytest

import envkit
from envkit import targets, types

DOCS = Path(__file__).parents[1] / "docs"
PAGES = sorted(
    path for path in DOCS.rglob("*.md") if "_build" not in path.relative_to(DOCS).parts
)
# What no reader has a use for: parts of the built-in environments, of the checker and
# of the parallel engine, and what answers in tensors on behalf of `envkit.time_step`.
INTERNAL = {
    "envkit.action_rows",
    "envkit.arrays",
    "envkit._tensor_bridge",
    "envkit.adapters.dependencies",
    "envkit.adapters.gymnasium_vector.autoreset_modes",
    "envkit.adapters.spaces.checked_members",
    "envkit.adapters.gymnasium_vector.chosen_rows",
    "envkit.adapters.dm.dm_env_parts",
    "envkit.adapters.dm.dm_env_specs",
    "envkit.adapters.dm.dm_env_state",
    "envkit.adapters.env_adapters.adapter_state",
    "envkit.adapters.env_adapters.author",
    "envkit.adapters.env_adapters.inference",
    "envkit.adapters.env_adapters.legality",
    "envkit.adapters.env_adapters.menu",
    "envkit.adapters.env_adapters.padding",
    "envkit.adapters.env_adapters.plan",
    "envkit.adapters.env_adapters.planning",
    "envkit.adapters.env_adapters.probing",
    "envkit.adapters.env_adapters.two_faces",
    "envkit.adapters.ale_parts",
    "envkit.adapters.envpool_parts",
    "envkit.adapters.episode_ends",
    "envkit.adapters.gin_config.gin_imports",
    "envkit.adapters.gin_config.gin_names",
    "envkit.adapters.gin_config.gin_registry",
    "envkit.adapters.old_gym.gym_ages",
    "envkit.adapters.gym_environments",
    "envkit.adapters.gymnasium_vector.gymnasium_rows",
    "envkit.adapters.dm.mujoco_drawing",
    "envkit.adapters.dm.mujoco_state",
    "envkit.adapters.spaces.object_spaces",
    "envkit.adapters.gymnasium_vector.outcomes",
    "envkit.adapters.gymnasium_vector.pending_calls",
    "envkit.adapters.spaces.plain_spaces",
    "envkit.adapters.gymnasium_vector.reset_requests",
    "envkit.adapters.gymnasium_vector.row_attributes",
    "envkit.adapters.gymnasium_vector.row_infos",
    "envkit.adapters.spaces.space_kinds",
    "envkit.adapters.spaces.space_walk",
    "envkit.adapters.spaces.spec_space",
    "envkit.adapters.gymnasium_vector.vector_actions",
    "envkit.adapters.gymnasium_vector.vector_calls",
    "envkit.adapters.gymnasium_vector.vector_ends",
    "envkit.adapters.gymnasium_vector.vector_infos",
    "envkit.adapters.gymnasium_vector.vector_kinds",
    "envkit.adapters.gymnasium_vector.vector_resets",
    "envkit.adapters.gymnasium_vector.vector_results",
    "envkit.adapters.gymnasium_vector.vector_rows",
    "envkit.adapters.gymnasium_vector.vector_spaces",
    "envkit.adapters.gymnasium_vector.vector_state",
    "envkit.adapters.gymnasium_vector.vector_steps",
    "envkit.adapters.doom.doom_buttons",
    "envkit.adapters.doom.doom_games",
    "envkit.adapters.doom.doom_states",
    "envkit.adapters.forwarding",
    "envkit.adapters.functional.gymnax_functions",
    "envkit.adapters.functional.jax_spaces",
    "envkit.adapters.functional.key_streams",
    "envkit.adapters.functional.row_actions",
    "envkit.adapters.functional.row_program",
    "envkit.adapters.functional.trees",
    "envkit.adapters.spaces.repacking",
    "envkit.adapters.ple_parts",
    "envkit.adapters.pettingzoo_parts",
    "envkit.adapters.pysc2_parts",
    "envkit.adapters.snapshot",
    "envkit.adapters.states.drawing",
    "envkit.adapters.states.local_functions",
    "envkit.adapters.of_tf_agents.tf_agents_environments",
    "envkit.adapters.of_tf_agents.tf_agents_order",
    "envkit.envs.actions",
    "envkit.realtime.choices",
    "envkit.realtime.given_actions",
    "envkit.realtime.hosts",
    "envkit.realtime.late_actions",
    "envkit.realtime.merged_specs",
    "envkit.realtime.merging",
    "envkit.realtime.process_host",
    "envkit.realtime.shown_rows",
    "envkit.realtime.thread_host",
    "envkit.realtime.ticking",
    "envkit.realtime.virtual_host",
    "envkit.envs.drawing",
    "envkit.ending_flags",
    "envkit.env_ids",
    "envkit.error_texts",
    "envkit.exception_copies",
    "envkit.interruptible",
    "envkit.lazy_names",
    "envkit.parallel.arguments",
    "envkit.parallel.cpus",
    "envkit.parallel.channel",
    "envkit.parallel.constructor_texts",
    "envkit.parallel.doorbell",
    "envkit.parallel.failures",
    "envkit.parallel.frames",
    "envkit.parallel.info_notes",
    "envkit.parallel.guardian",
    "envkit.parallel.launch",
    "envkit.parallel.memory",
    "envkit.parallel.nameplate",
    "envkit.parallel.pool",
    "envkit.parallel.row_writer",
    "envkit.parallel.serialize",
    "envkit.parallel.worker_main",
    "envkit.parallel.zygote",
    "envkit.parallel.interrupts",
    "envkit.window",
    "envkit.parallel.questions",
    "envkit.parallel.row_book",
    "envkit.parallel.watch",
    "envkit.parallel.workforce",
    "envkit.__main__",
    "envkit.cli.bench_parts",
    "envkit.cli.check_parts",
    "envkit.cli.describe_parts",
    "envkit.cli.list_parts",
    "envkit.cli.output",
    "envkit.cli.process_memory",
    "envkit.cli.play_parts",
    "envkit.cli.record_parts",
    "envkit.cli.replay_parts",
    "envkit.cli.end_signals",
    "envkit.cli.numbers",
    "envkit.cli.target",
    "envkit.cli.terminal",
    "envkit.cli.top_parts",
    "envkit.plain_data",
    "envkit.recording.column",
    "envkit.recording.directory",
    "envkit.recording.episode_file",
    "envkit.recording.infos",
    "envkit.recording.layout",
    "envkit.recording.letters",
    "envkit.recording.mailbox",
    "envkit.recording.schedule",
    "envkit.recording.writer",
    "envkit.row_calls",
    "envkit.stacked_infos",
    "envkit.specs.bounds",
    "envkit.testing.backend_contract",
    "envkit.testing.contract",
    "envkit.tf.action_leaves",
    "envkit.tf.aligned",
    "envkit.tf.autograph",
    "envkit.tf.batch_of_one",
    "envkit.tf.lanes",
    "envkit.tf.outer_dims",
    "envkit.tf.sampling_seeds",
    "envkit.tf.spec_bounds",
    "envkit.tf.spec_leaves",
    "envkit.tf.spec_sampling",
    "envkit.tf.spec_shapes",
    "envkit.tf.tensor_actions",
    "envkit.tf.tf_time_step",
    "envkit.tf.time_step_leaves",
    "envkit.tf.uniform_numbers",
    "envkit.wording",
    "envkit.wrappers.actions.action_scale",
    "envkit.wrappers.actions.nearest_bounds",
    "envkit.wrappers.arguments",
    "envkit.wrappers.atari.lives",
    "envkit.wrappers.atari.some_rows",
    "envkit.wrappers.checking.action_check",
    "envkit.wrappers.checking.episode_book",
    "envkit.wrappers.checking.time_step_check",
    "envkit.wrappers.fresh_nests",
    "envkit.wrappers.history.row_history",
    "envkit.wrappers.observations.leaf_specs",
    "envkit.wrappers.observations.packing",
    "envkit.wrappers.observations.rescaling",
    "envkit.wrappers.pictures.rendered",
    "envkit.wrappers.ranges",
    "envkit.wrappers.reward_sums",
    "envkit.wrappers.video.film",
    "envkit.wrappers.video.gif_file",
    "envkit.wrappers.video.mp4_file",
}


def is_internal(name: str) -> bool:
    return any(name == part or name.startswith(f"{part}.") for part in INTERNAL)


def modules() -> set[str]:
    """Names every module, but packages, which only gather what their modules have."""
    found = pkgutil.walk_packages(envkit.__path__, "envkit.")
    return {module.name for module in found if not module.ispkg}


def test_the_reference_has_a_page_for_every_module():
    index = (DOCS / "reference" / "index.md").read_text("utf-8")
    listed = set(re.findall(r"^   (envkit\.\S+)$", index, re.M))

    expected = {name for name in modules() if not is_internal(name)}
    assert expected == listed | {"envkit.types"}


def test_the_page_of_the_types_describes_each_of_them():
    page = (DOCS / "reference" / "types.md").read_text("utf-8")

    assert sorted(types.__all__) == sorted(
        re.findall(r"\{py:data\} envkit\.types\.(\w+)", page)
    )


def test_the_table_of_schemes_is_whole():
    page = (DOCS / "tutorial.md").read_text("utf-8")
    of_envkit = set(re.findall(r'^\| `\w+` \| `"(\w+):', page, re.MULTILINE))

    assert set(targets._SCHEMES) == of_envkit


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_every_code_block_is_run_or_says_that_it_is_no_python(page):
    text = page.read_text("utf-8")
    openings = re.findall(r"^ *(?:```|:::)+(.*)$", text, re.M)[::2]

    assert [] == [
        language
        for language in openings
        if language not in ("python", "console", "text")
        # It needs TF-Agents, so `test_tf_agents.py` runs it.
        and (language, page.stem) != ("py", "coming_from_tf_agents")
        and not re.match(r"\{(eval-rst|glossary|include|py:data|toctree)\}", language)
    ]


def imports_for_tf_agents():
    """Lists what the right column of the table says to import."""
    page = (DOCS / "coming_from_tf_agents.md").read_text("utf-8")
    return re.findall(r"^\| `from tf_agents\S* .*` \| `(from \S+ .*)` \|$", page, re.M)


@pytest.mark.parametrize("statement", imports_for_tf_agents())
def test_what_the_table_for_tf_agents_imports_is_there(statement):
    names = statement.partition(" import ")[2].split(", ")

    exec(statement, namespace := {})

    assert {name.split()[-1] for name in names} <= namespace.keys()
