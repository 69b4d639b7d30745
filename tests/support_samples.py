"""Samples of a model's own sampling distribution, for tests of what trains on them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from support_rounds import model_logprobs

from weir.trainer.credit.samples import Sample
from weir.trainer.data.dataset import SupervisedRow


def make_samples(model_dir: Path, lengths: list[tuple[int, int]], *, seed: int = 0, noise: float = 0.2) -> list[Sample]:
    """Samples with (prompt, output) lengths; old logprobs are the model's, and noise clips some ratios."""
    random = np.random.default_rng(seed)
    samples = []
    for i, (num_prompt, num_output) in enumerate(lengths):
        prompt, output = random.integers(10, 200, (1, num_prompt)), random.integers(10, 200, (1, num_output))
        temperature = 1.0 if i % 2 else 0.7
        logprobs = model_logprobs(model_dir, prompt, output, temperature)[0]
        samples.append(
            Sample(
                call_id=f"c{i}",
                group_id=f"g{i % 2}",
                prompt_ids=prompt[0].astype(np.int32),
                output_ids=output[0].astype(np.int32),
                old_logprobs=(logprobs + noise * random.standard_normal(num_output)).astype(np.float32),
                versions=np.zeros(num_output, np.int32),
                temperature=temperature,
                advantage=float(random.standard_normal()),
            )
        )
    return samples


def branching_samples(model_dir: Path) -> list[Sample]:
    """Two groups of one prompt each: three answers, the first of them gone on with."""
    random = np.random.default_rng(5)
    samples = []
    for group in range(2):
        prompt = random.integers(10, 200, 20)
        first = random.integers(10, 200, 8)
        turn = np.concatenate([prompt, first, random.integers(10, 200, 4)])
        calls = [(prompt, first), (turn, random.integers(10, 200, 5))]
        calls += [(prompt, random.integers(10, 200, length)) for length in (9, 6)]
        for before, output in calls:
            logprobs = model_logprobs(model_dir, before[None], output[None], 0.7)[0]
            samples.append(
                Sample(
                    call_id=f"c{len(samples)}",
                    group_id=f"g{group}",
                    prompt_ids=before.astype(np.int32),
                    output_ids=output.astype(np.int32),
                    old_logprobs=(logprobs + 0.2 * random.standard_normal(len(output))).astype(np.float32),
                    versions=np.zeros(len(output), np.int32),
                    temperature=0.7,
                    advantage=float(random.standard_normal()),
                )
            )
    return samples


def make_rows(lengths: list[int], seed: int = 0) -> list[SupervisedRow]:
    """Rows of so many targets, behind prompts of up to three tokens."""
    random = np.random.default_rng(seed)
    rows = []
    for length in lengths:
        prompt = int(random.integers(1, 4))
        ids = random.integers(10, 200, prompt + length).astype(np.int32)
        rows.append(SupervisedRow(ids=ids, targets=np.arange(len(ids)) >= prompt))
    return rows
