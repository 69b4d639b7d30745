"""The model and the samples of `weir bench trainer`; the samples have the lengths of kernel tasks.

Invariant: the seed determines every byte, so that both sides of the benchmark compute on the same data.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from weir.scripts.bench.random_model import VOCABULARY, write_random_model
from weir.scripts.bench.random_samples import Ids, random_ids, random_sample
from weir.trainer.credit.samples import Sample

NUM_SAMPLES = 16
LONGEST_PROMPT = 256
LONGEST_ANSWER = 512

GROUPS, SESSIONS = 1, 8
TASK_TOKENS, ANSWER_TOKENS, FEEDBACK_TOKENS = 384, 96, 32


def write_model(folder: Path) -> None:
    """Write the random model with a tokenizer, which TRL's trainer requires."""
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    write_random_model(folder)
    pieces: Any = models.WordLevel({"<pad>": 0, "<eos>": 1, "x": 2}, unk_token="x")
    tokenizer = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=Tokenizer(pieces), pad_token="<pad>", eos_token="<eos>", unk_token="x"
    )
    tokenizer.chat_template = "{% for message in messages %}{{ message.content }}{% endfor %}"
    tokenizer.save_pretrained(folder)


def flat_samples(seed: int = 0) -> list[Sample]:
    """Samples without common prefixes; the lengths of answers vary as those of agents do."""
    random = np.random.default_rng(seed)
    samples = []
    for index in range(NUM_SAMPLES):
        prompt = _draw(random, int(random.integers(64, LONGEST_PROMPT + 1)))
        length = int(np.clip(random.lognormal(np.log(140), 0.8), 16, LONGEST_ANSWER))
        samples.append(_sample(index, prompt, _draw(random, length), random))
    return samples


def tree_samples(seed: int = 0) -> list[Sample]:
    """Sessions of two turns over a shared prompt: each answer is a sample, whose prompt contains the turns before."""
    random = np.random.default_rng(seed)
    samples: list[Sample] = []
    for _ in range(GROUPS):
        task = _draw(random, TASK_TOKENS)
        for _ in range(SESSIONS):
            first, feedback, second = (
                _draw(random, length) for length in (ANSWER_TOKENS, FEEDBACK_TOKENS, ANSWER_TOKENS)
            )
            samples.append(_sample(len(samples), task, first, random))
            samples.append(_sample(len(samples), np.concatenate([task, first, feedback]), second, random))
    return samples


def _draw(random: np.random.Generator, length: int) -> Ids:
    return random_ids(random, length, VOCABULARY)


def _sample(index: int, prompt: Ids, output: Ids, random: np.random.Generator) -> Sample:
    return random_sample(index, prompt, output, random, VOCABULARY)
