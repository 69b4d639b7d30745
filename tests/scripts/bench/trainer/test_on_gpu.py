"""`weir bench trainer --gpu`: what it refuses without a GPU, and the samples that it measures with."""

from __future__ import annotations

import pytest
import torch

from weir.scripts.bench.trainer.on_gpu import CASES, FORMS, TOKENS, flat_samples, main, tree_samples
from weir.scripts.launch.errors import UsageError
from weir.trainer.model.batching import Layout, micro_batches


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
