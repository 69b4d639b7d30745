"""`weir model check`: what it finds of a folder, and how it names what is missing."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from transformers import AutoModelForCausalLM
from typer.testing import CliRunner

from weir.proxy.config import ProxyConfig
from weir.scripts.cli.main import app
from weir.scripts.models.check import ModelReport, check_model, report_lines


@pytest.fixture
def folder(tmp_path: Path, tiny_model_dir: Path) -> Path:
    """A copy of the tiny model that a test may damage."""
    return Path(shutil.copytree(tiny_model_dir, tmp_path / "model"))


def check(folder: Path) -> ModelReport:
    return check_model(folder, ProxyConfig(), tokens=1000, batch_tokens=512)


def test_a_whole_folder_has_no_problem(folder: Path) -> None:
    report = check(folder)
    assert report.problems == [] and report.rendering == {
        "renderer": "qwen3",
        "later turns": "exact",
        "system prompt": "kept",
        "tools": "kept",
        "wishes": "thinking on and off (enable_thinking); others are recorded in ignored_fields",
    }
    assert report.prompt is not None and report.prompt.endswith("<|im_start|>assistant\n")
    assert report.shape is not None and report.shape.context == 4096
    first, _ = report.serving
    assert first["kv_per_token"] == 2 * 2 * report.shape.num_layers * report.shape.key
    plain = report.training[0]
    assert plain["moments"] == 8 * report.shape.num_parameters and plain["optimizer"] == "AdamW"


def test_the_real_model_is_described(smollm2_dir: Path) -> None:
    report = check(smollm2_dir)
    assert report.problems == []
    assert report.shape is not None and report.shape.num_parameters == 134_515_008
    assert report.weights is not None and report.weights.dtypes == ("BF16",)
    text = "\n".join(report_lines(report))
    assert "llama, 0.135 B parameters" in text and "context       8192 tokens; vocabulary 49152" in text


@pytest.mark.parametrize(
    ("missing", "problem"),
    [
        ("config.json", "it has no config.json"),
        ("model.safetensors", "weights: model.safetensors is missing"),
        ("tokenizer.json", "tokenizer.json"),
    ],
)
def test_what_is_missing_is_named(folder: Path, missing: str, problem: str) -> None:
    (folder / missing).unlink()
    assert any(problem in found for found in check(folder).problems)


def test_weights_that_are_cut_off_are_found_without_loading_them(folder: Path) -> None:
    file = folder / "model.safetensors"
    whole = file.read_bytes()
    file.write_bytes(whole[:-10])
    (problem,) = check(folder).problems
    assert f"model.safetensors has {len(whole) - 10} bytes and its header says {len(whole)}" in problem
    file.write_bytes(b"not safetensors at all")
    assert "model.safetensors is not a safetensors file" in check(folder).problems[0]


def test_files_of_an_index_are_all_needed(folder: Path) -> None:
    AutoModelForCausalLM.from_pretrained(folder).save_pretrained(folder, max_shard_size="100KB")
    (folder / "model.safetensors").unlink()
    assert check(folder).problems == []
    shards = sorted(folder.glob("model-*.safetensors"))
    assert len(shards) > 2
    shards[1].unlink()
    assert check(folder).problems == [f"weights: {shards[1].name} is missing: get the model again"]


def test_weights_of_another_model_are_found(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 3, "layer_types": None}))
    (problem,) = check(folder).problems
    assert "a file is missing, or config.json belongs to another model" in problem


def test_pickled_weights_are_refused_with_the_way_out(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    assert "pytorch_model.bin, which Weir does not load: save them as safetensors" in check(folder).problems[0]


def test_a_model_without_a_renderer_of_its_family_keeps_turns_exact_by_its_own_template(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"model_type": "qwen2", "architectures": None}))
    report = check(folder)
    assert report.rendering["renderer"] == "the model's own chat template"
    assert report.rendering["later turns"] == "exact"


def test_the_command_prints_json_and_its_status_says_whether_the_folder_is_whole(folder: Path) -> None:
    good = CliRunner().invoke(app, ["model", "check", str(folder), "--json"])
    assert good.exit_code == 0 and json.loads(good.stdout)["problems"] == []
    (folder / "model.safetensors").unlink()
    bad = CliRunner().invoke(app, ["model", "check", str(folder)])
    assert bad.exit_code == 1 and "PROBLEM       weights: model.safetensors is missing" in bad.stdout
