"""`weir bench trainer --gpu`: what it refuses without a GPU, and the samples that it measures with."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from weir.scripts.bench.trainer.on_gpu import (
    CASES,
    FORMS,
    TOKENS,
    config_of,
    flat_samples,
    main,
    model_config,
    takes_steps,
    tree_samples,
)
from weir.scripts.launch.errors import UsageError
from weir.trainer.model.batching import Layout, micro_batches
from weir.trainer.model.memory import TrainingMemory, training_memory
from weir.trainer.model.shape import read_shape
from weir.trainer.rounds.fit import training_plan

PARAMETERS = {"0.6b": 596_049_920, "1.7b": 1_720_574_976, "4b": 4_022_468_096, "8b": 8_190_735_360}  # as published


def planned(name: str, folder: Path) -> TrainingMemory:
    model_config(FORMS[CASES[name].form]).save_pretrained(folder)
    return training_memory(read_shape(folder), training_plan(config_of(CASES[name])))


@pytest.mark.parametrize("form", FORMS)
def test_the_forms_have_as_many_parameters_as_the_published_models(form: str, tmp_path: Path) -> None:
    model_config(FORMS[form]).save_pretrained(tmp_path)
    assert read_shape(tmp_path).num_parameters == PARAMETERS[form]


def test_an_8b_with_cpu_adam_needs_half_a_gpu_of_80_gb_and_131_gb_beside_it(tmp_path: Path) -> None:
    memory = planned("8b_cpu_adam", tmp_path)
    assert memory.peak < 40e9
    assert memory.host == 16 * PARAMETERS["8b"]
    assert not takes_steps(memory, 128 << 30) and takes_steps(memory, 138 * 10**9)


def test_without_cpu_adam_a_step_is_taken_on_any_machine_that_loads_the_model(tmp_path: Path) -> None:
    assert takes_steps(planned("0.6b", tmp_path), 3 * 10**9)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_so() -> None:
    with pytest.raises(UsageError, match="finds no GPU: run this on a machine with one"):
        main([], 989.0, 1)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_samples_fill_the_micro_batches_to_the_token(case) -> None:
    assert case.form in FORMS
    parts = micro_batches(flat_samples(case), TOKENS, Layout.PACKED)
    assert [sum(len(sample.ids) for sample in part) for part in parts] == [TOKENS] * case.micro_batches


def test_eight_samples_of_a_tree_share_a_prompt() -> None:
    samples = tree_samples()
    prompts = {sample.prompt_ids.tobytes() for sample in samples}
    assert (len(samples), len(prompts)) == (16, 2)
    assert {len(sample.ids) for sample in samples} == {2048}
