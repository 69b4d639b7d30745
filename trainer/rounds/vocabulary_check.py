"""Refuses calls that were recorded with another tokenizer than the model's, before a round claims them.

An id beyond the vocabulary, or another digest of the vocabulary, proves another tokenizer. Calls recorded without a
digest (relayed, imported, before schema version 3) may pass; the metric `fresh_logprob_diff_max` shows their mismatch.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from weir.store.reader import StoredCall
from weir.trainer.data.recorded_rows import model_digest
from weir.trainer.errors import TrainerUsageError


def check_vocabulary(calls: Iterable[StoredCall], model_path: Path) -> None:
    """Raise `TrainerUsageError` naming the first call that was recorded with another tokenizer than a folder's."""
    size, digest = _vocabulary_size(model_path), model_digest(model_path)
    for call in calls:
        if call.tokenizer and digest is not None and call.tokenizer != digest:
            raise TrainerUsageError(
                f"call {call.call_id} of group {call.group_id} was recorded with the vocabulary {call.tokenizer}, but "
                f"the tokenizer in {model_path} has {digest}: the same ids are other tokens there; set [model] path to "
                "the model that agents were served with, or leave such groups out with trainer.groups_where"
            )
        largest = max((int(ids.max()) for ids in (call.prompt_ids, call.output_ids) if len(ids)), default=-1)
        if size is not None and largest >= size:
            raise TrainerUsageError(
                f"call {call.call_id} of group {call.group_id} has the token {largest}, but the model in {model_path} "
                f"knows {size} tokens: agents were served with another model or tokenizer; set [model] path to that "
                "one, or leave such groups out with trainer.groups_where"
            )


def _vocabulary_size(model_path: Path) -> int | None:
    """The vocabulary size in config.json, if it is there. Raises `TrainerUsageError` without config.json."""
    try:
        config: dict[str, Any] = json.loads((model_path / "config.json").read_bytes())
    except FileNotFoundError:
        raise TrainerUsageError(
            f"{model_path} is not a Hugging Face model folder: no config.json in it; set [model] path"
        ) from None
    size = config.get("vocab_size", config.get("text_config", {}).get("vocab_size"))
    return size if isinstance(size, int) else None
