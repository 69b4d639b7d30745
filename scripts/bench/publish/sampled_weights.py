"""Which weights recorded tokens were sampled with: their logprobs, computed again from the version that is recorded."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from weir.store.log.segment_format import list_segments, read_segment
from weir.store.records.call_record import CallRecord, unpack_ids, unpack_logprobs

MOST_DIFFERENCE = 1e-3  # nats; rounding in float32 is below 1e-4, another model's logprobs differ by about 0.2


def count_wrong_tokens(root: Path, models: Sequence[Path]) -> tuple[int, int, int]:
    """Tokens whose logprob is not that of their version, all tokens, and calls with tokens of several versions.

    Version N has the weights of model N modulo the number of models, in float32.
    """
    from transformers import AutoModelForCausalLM

    loaded: list[Any] = [AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32) for model in models]
    records = [record for segment in list_segments(root / "log") for record in read_segment(segment.path).records]
    wrong = tokens = 0
    for record in records:
        expected = _expected(record, loaded)
        recorded = torch.tensor(unpack_logprobs(record.output_logprobs))
        wrong += int(((recorded - expected).abs() > MOST_DIFFERENCE).sum())
        tokens += len(recorded)
    return wrong, tokens, sum(len({span.label for span in record.spans}) > 1 for record in records)


def _expected(record: CallRecord, models: Sequence[Any]) -> torch.Tensor:
    """The logprobs of a call's output, each by the weights of its version."""
    prompt, output = unpack_ids(record.prompt_ids).tolist(), unpack_ids(record.output_ids).tolist()
    ids = torch.tensor([[*prompt, *output]])
    expected = torch.zeros(len(output))
    for span in record.spans:
        with torch.inference_mode():
            logits = models[int(span.label) % len(models)](ids).logits[0].float()
        logprobs = logits[len(prompt) - 1 : -1].log_softmax(-1)
        places = slice(span.start, span.end)
        expected[places] = logprobs[places].gather(-1, ids[0, len(prompt) :][places, None])[:, 0]
    return expected
