"""One request inside the engine: its parameters, its sampled tokens, its finish reason.

Invariant: `output_ids`, `logprobs` and the version spans describe the same tokens. Only the engine loop's thread
appends to them; other threads may read the first `len(logprobs)` of each at any time, because its
logprob is appended last.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from weir.engine.grammars import Matcher
from weir.engine.params import Sampling

Finish = dict[str, Any]  # finish_reason as SGLang writes it
Likeliest = list[tuple[float, int, None]]  # logprob and id of the likeliest tokens, likeliest first


def finish_length(length: int) -> Finish:
    """The output has reached its token limit."""
    return {"type": "length", "length": length}


def finish_stop(matched: int | str) -> Finish:
    """A stop id or stop string was sampled."""
    return {"type": "stop", "matched": matched}


def finish_abort(message: str, status_code: int | None = None, err_type: str | None = None) -> Finish:
    """The request was aborted; its output is partial."""
    return {"type": "abort", "message": message, "status_code": status_code, "err_type": err_type}


@dataclass(slots=True, kw_only=True, eq=False)
class Request:
    """The state of a request. `changed` is called on the event loop when there is new output or a finish reason."""

    rid: str
    prompt_ids: list[int]
    sampling: Sampling
    seed: int
    stream: bool
    return_logprob: bool
    logprob_start: int | None  # first prompt position whose logprob is wanted
    routed_start: int | None = None  # first token whose experts are wanted
    num_top: int = 0  # how many of the likeliest tokens are wanted at each output position
    changed: Callable[[], None]
    matcher: Matcher | None = None  # where the output must keep to a grammar
    output_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    sampling_logprobs: list[float] = field(default_factory=list)  # after truncation
    top: list[Likeliest] = field(default_factory=list)  # at each output position, where wanted
    spans: list[tuple[str, int]] = field(default_factory=list)  # (version, first output position)
    input_logprobs: list[tuple[float | None, int, None]] | None = None
    routed_experts: torch.Tensor | None = None  # (tokens, layers, chosen) int32, of all tokens but the last
    weight_version: str = ""
    finish: Finish | None = None
    num_retractions: int = 0
    cached_tokens: int = 0  # of the prompt, when it was last admitted

    @property
    def num_tokens(self) -> int:
        """Prompt and output tokens."""
        return len(self.prompt_ids) + len(self.output_ids)

    def record(
        self, token: int, logprob: float, version: str, *, sampling_logprob: float, top: Likeliest | None = None
    ) -> None:
        """Append one sampled token; `sampling_logprob` is its logprob after truncation, `top` holds `num_top` entries.

        Readers see what belongs to a token no later than its logprob, which comes last.
        """
        if not self.spans or self.weight_version != version:
            self.spans.append((version, len(self.output_ids)))
        self.weight_version = version
        self.output_ids.append(token)
        self.sampling_logprobs.append(sampling_logprob)
        if top is not None:
            self.top.append(top)
        self.logprobs.append(logprob)

    def version_spans(self) -> list[dict[str, Any]]:
        """Half-open spans of output tokens, each with the version that sampled them."""
        spans = self.spans or [(self.weight_version, 0)]
        ends = [start for _, start in spans[1:]] + [len(self.output_ids)]
        return [
            {"version": version, "start": start, "end": end} for (version, start), end in zip(spans, ends, strict=True)
        ]
