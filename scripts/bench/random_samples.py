"""Random samples of the benchmarks that train: ids of a vocabulary, and the logprobs of one answer among all tokens."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from weir.trainer.credit.samples import Sample

Ids = npt.NDArray[np.int32]
FIRST_ID = 3  # after those that end or pad


def random_ids(random: np.random.Generator, length: int, vocabulary: int) -> Ids:
    """So many token ids, shape (length,)."""
    return random.integers(FIRST_ID, vocabulary, length).astype(np.int32)


def random_sample(
    index: int, prompt: Ids, output: Ids, random: np.random.Generator, vocabulary: int, *, of_group: int = 8
) -> Sample:
    """Sample number `index`; `of_group` samples in a row are one group. The advantage is drawn."""
    return Sample(
        call_id=f"c{index}",
        group_id=f"g{index // of_group}",
        prompt_ids=prompt,
        output_ids=output,
        old_logprobs=np.full(len(output), -np.log(vocabulary), dtype=np.float32),
        versions=np.zeros(len(output), dtype=np.int32),
        temperature=1.0,
        advantage=float(random.standard_normal()),
    )
