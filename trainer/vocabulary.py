"""Whether recorded token ids can be those of a model: a round over another tokenizer's ids is refused before its claim.

Invariant: reads the model folder's configuration only. An id beyond the vocabulary proves another tokenizer; that ids
lie within it proves nothing, which is what `fresh_logprob_diff_max` is for.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from weir.store.reader import StoredCall
from weir.trainer.errors import TrainerUsageError


def check_vocabulary(calls: Iterable[StoredCall], model_path: Path) -> None:
    """Raise `TrainerUsageError` naming the first call with a token that the model in a folder does not have."""
    size = _vocabulary_size(model_path)
    if size is None:
        return
    for call in calls:
        largest = max((int(ids.max()) for ids in (call.prompt_ids, call.output_ids) if len(ids)), default=-1)
        if largest >= size:
            raise TrainerUsageError(
                f"call {call.call_id} of group {call.group_id} has the token {largest}, but the model in {model_path} "
                f"knows {size} tokens: agents were served with another model or tokenizer; set [model] path to that "
                "one, or leave such groups out with trainer.groups_where"
            )


def _vocabulary_size(model_path: Path) -> int | None:
    """What the configuration says; None where it does not."""
    try:
        config: dict[str, Any] = json.loads((model_path / "config.json").read_bytes())
    except FileNotFoundError:
        raise TrainerUsageError(
            f"{model_path} is not a Hugging Face model folder: no config.json in it; set [model] path"
        ) from None
    size = config.get("vocab_size", config.get("text_config", {}).get("vocab_size"))
    return size if isinstance(size, int) else None
