"""Whether recorded token ids can be those of a model: a round over another tokenizer's ids is refused before its claim.

Invariant: reads the model folder's configuration and tokenizer only. An id beyond the vocabulary proves another
tokenizer, and so does a digest of the vocabulary that is not the model's; calls that were recorded without one
(relayed, imported, before schema version 3) prove nothing, which is what `fresh_logprob_diff_max` is for.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from weir.store.reader import StoredCall
from weir.store.records.vocabulary_digest import vocabulary_digest
from weir.trainer.errors import TrainerUsageError


def check_vocabulary(calls: Iterable[StoredCall], model_path: Path) -> None:
    """Raise `TrainerUsageError` naming the first call whose tokens are not those of the model in a folder."""
    size, digest = _vocabulary_size(model_path), _vocabulary_digest(model_path)
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
    """What the configuration says; None where it does not."""
    try:
        config: dict[str, Any] = json.loads((model_path / "config.json").read_bytes())
    except FileNotFoundError:
        raise TrainerUsageError(
            f"{model_path} is not a Hugging Face model folder: no config.json in it; set [model] path"
        ) from None
    size = config.get("vocab_size", config.get("text_config", {}).get("vocab_size"))
    return size if isinstance(size, int) else None


def _vocabulary_digest(model_path: Path) -> str | None:
    """That of the folder's tokenizer; None where it has none in one file."""
    file = model_path / "tokenizer.json"
    return _digest_of(file.read_bytes()) if file.exists() else None


@functools.lru_cache(maxsize=2)
def _digest_of(content: bytes) -> str:
    """Versions hold copies of one tokenizer: it is read once."""
    return vocabulary_digest(Tokenizer.from_buffer(content).get_vocab())
