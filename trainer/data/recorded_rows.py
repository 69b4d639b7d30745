"""Rows of exact token ids: lines that carry the ids of a recorded branch, for models of the same vocabulary.

Invariant: ids are trained on only where the line's digest of the vocabulary is the model's own; any other line is
rendered from its messages, and counted.
"""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from weir.store.records.vocabulary_digest import vocabulary_digest
from weir.trainer.data.dataset import Recorded, SupervisedRow


def model_digest(model: Path) -> str | None:
    """The digest of the vocabulary of a model folder; None without tokenizer.json."""
    file = model / "tokenizer.json"
    return _digest_of(file.read_bytes()) if file.exists() else None


@functools.lru_cache(maxsize=2)
def _digest_of(content: bytes) -> str:
    """Cached, since all versions hold copies of one tokenizer."""
    return vocabulary_digest(Tokenizer.from_buffer(content).get_vocab())


def recorded_row(line: Recorded) -> SupervisedRow:
    """The row of a line's ids."""
    ids = np.asarray(line.ids, dtype=np.int32)
    targets = np.zeros(len(ids), dtype=np.bool_)
    for start, end in line.targets:
        targets[start:end] = True
    return SupervisedRow(ids=ids, targets=targets)
