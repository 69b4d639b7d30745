"""What a round needs, and what `weir round --plan` says where it does not fit."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from weir.agents.config import AgentsConfig
from weir.scripts.cli.main import app
from weir.scripts.models.round_plan import DoesNotFit, plan_lines, plan_memory, require_fit
from weir.trainer.model.memory import usable
from weir.trainer.settings.config import TrainerConfig

RECIPES = Path(__file__).parents[3] / "recipes"


def test_the_work_is_that_of_the_settings(tiny_model_dir: Path) -> None:
    config = TrainerConfig(groups_per_round=2, token_budget=1000, gradient_checkpointing=True)
    agents = AgentsConfig(samples=4, turns=3, max_tokens=10)
    planned = plan_memory(config, agents, tiny_model_dir, capacity=None)
    assert planned.num_sessions == 8 and planned.output_tokens == 240
    assert planned.flops == 8 * planned.shape.num_parameters * 240 * planned.passes
    assert planned.plan.tokens == 1000 and planned.config.lr == 4e-4
    assert any("not compared with a device" in line for line in plan_lines(planned))
    long_samples = TrainerConfig(token_budget=1000, max_sample_tokens=5000)
    longer = plan_memory(long_samples, agents, tiny_model_dir, capacity=None)
    assert longer.plan.tokens == 5000


def test_what_does_not_fit_is_refused_with_changes_that_do(tiny_model_dir: Path) -> None:
    agents = AgentsConfig()
    whole = plan_memory(TrainerConfig(token_budget=4096), agents, tiny_model_dir, capacity=None)
    saved = plan_memory(
        TrainerConfig(token_budget=4096, gradient_checkpointing=True), agents, tiny_model_dir, capacity=None
    )
    capacity = (whole.memory.peak + saved.memory.peak) // 2
    capacity += capacity - usable(capacity)
    planned = plan_memory(TrainerConfig(token_budget=4096), agents, tiny_model_dir, capacity=capacity)
    with pytest.raises(DoesNotFit, match=r"forward and backward needs .* trainer\.gradient_checkpointing = true"):
        require_fit(planned)
    require_fit(plan_memory(TrainerConfig(gradient_checkpointing=True), agents, tiny_model_dir, capacity=capacity))
    hopeless = plan_memory(TrainerConfig(), agents, tiny_model_dir, capacity=1000)
    with pytest.raises(DoesNotFit, match=r"no setting of \[trainer\] makes it fit"):
        require_fit(hopeless)


@pytest.mark.parametrize(
    ("name", "total", "active"),
    [
        ("Qwen3-0.6B", 596_049_920, 596_049_920),
        ("Qwen3-8B", 8_190_735_360, 8_190_735_360),
        ("Qwen3-30B-A3B", 30_532_122_624, 3_353_032_704),
        ("SmolLM2-135M", 134_515_008, 134_515_008),
    ],
)
def test_configurations_of_the_recipes_have_the_published_sizes(name: str, total: int, active: int) -> None:
    shape = plan_memory(TrainerConfig(), AgentsConfig(), RECIPES / "configs" / name, capacity=None).shape
    assert (shape.num_parameters, shape.num_active) == (total, active)


RECIPE = [
    ("qwen3-8b-single-turn", "Qwen3-8B", 79.0),
    ("qwen3-8b-multi-turn", "Qwen3-8B", 79.0),
    ("qwen3-30b-a3b", "Qwen3-30B-A3B", 139.0),
    ("qwen3-0.6b-one-gpu", "Qwen3-0.6B", 24.0),
    ("smollm2-135m-cpu", "SmolLM2-135M", 8.0),
]


@pytest.mark.parametrize(("recipe", "model", "gib"), RECIPE)
def test_every_recipe_fits_the_machine_that_it_names(
    recipe: str, model: str, gib: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEIR_STORE__ROOT", str(tmp_path / "store"))
    config = RECIPES / f"{recipe}.toml"
    arguments = ["--plan", "--config", str(config), "--model", str(RECIPES / "configs" / model)]
    found = CliRunner().invoke(app, ["round", *arguments, "--device-gib", str(gib)])
    assert found.exit_code == 0, found.output + str(found.exception)
    assert "peak       " in found.stdout and "nothing to claim: there is no store yet" in found.stdout
    assert f"--device-gib {gib:g}" in config.read_text()
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize(("recipe", "model", "gib"), RECIPE)
def test_the_settings_of_every_recipe_agree(recipe: str, model: str, gib: float) -> None:
    found = CliRunner().invoke(app, ["up", "--check", "--settings-only", "--config", str(RECIPES / f"{recipe}.toml")])
    assert found.exit_code == 0, found.output + str(found.exception)


def test_a_recipe_on_too_small_a_device_is_refused(tmp_path: Path) -> None:
    arguments = ["--plan", "--config", str(RECIPES / "qwen3-8b-single-turn.toml"), "--device-gib", "24"]
    found = CliRunner().invoke(app, ["round", *arguments, "--model", str(RECIPES / "configs" / "Qwen3-8B")])
    assert isinstance(found.exception, DoesNotFit) and "the round does not fit" in str(found.exception)
