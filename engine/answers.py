"""The answers of /generate, with SGLang's fields.

Invariant: ids, logprobs and completion_tokens of a chunk cover the same tokens, although the engine loop may append to
the request meanwhile; finish_reason and weight_versions are on the last chunk only.
"""

from __future__ import annotations

import time
from base64 import b64encode
from typing import Any

from weir.engine.request import Finish, Request
from weir.engine.texts import GrowingText, Texts, trim_stop, visible_ids


class Answer:
    """Builds the chunks of one request: cumulative, or incremental."""

    def __init__(self, request: Request, texts: Texts, *, incremental: bool) -> None:
        self._request = request
        self._incremental = incremental
        self._text = GrowingText(texts, skip_special=request.sampling.skip_special_tokens)
        self._sent = 0
        self._sent_text = 0
        self._started = time.monotonic()

    @property
    def has_news(self) -> bool:
        """Whether there is output, or a finish reason, that no chunk has held."""
        return self._request.finish is not None or len(self._request.logprobs) > self._sent

    def chunk(self) -> dict[str, Any]:
        """The current state of the request in SGLang's form."""
        request = self._request
        finish = request.finish  # read once, and before the count: the loop appends concurrently
        count = len(request.logprobs)
        start = self._sent if self._incremental else 0
        self._sent = count
        return {
            "text": self._text_until(count, finish),
            "output_ids": request.output_ids[start:count],
            "meta_info": {
                "id": request.rid,
                "finish_reason": finish,
                "prompt_tokens": len(request.prompt_ids),
                "weight_version": request.weight_version,
                "num_retractions": request.num_retractions,
                **self._logprob_fields(start, count),
                "reasoning_tokens": 0,
                "completion_tokens": count,
                "cached_tokens": request.cached_tokens,
                **({} if finish is None else self._final_fields()),
                "cached_tokens_details": None,
                "dp_rank": None,
            },
        }

    def _text_until(self, count: int, finish: Finish | None) -> str:
        request = self._request
        no_trim = request.sampling.no_stop_trim
        ids = visible_ids(request.output_ids[:count], finish, no_stop_trim=no_trim)
        text = trim_stop(self._text.read(ids, final=finish is not None), finish, no_stop_trim=no_trim)
        if not self._incremental:
            return text
        piece, self._sent_text = text[self._sent_text :], len(text)
        return piece

    def _logprob_fields(self, start: int, count: int) -> dict[str, Any]:
        request = self._request
        if not request.return_logprob:
            return {}
        truncated = request.sampling.truncates
        entries = zip(request.logprobs[start:count], request.output_ids[start:count], strict=True)
        return {
            "input_token_logprobs": request.input_logprobs or [],
            "output_token_logprobs": [(logprob, token, None) for logprob, token in entries],
            "output_token_logprobs_length": count,
            **({"output_token_sampling_logprobs": request.sampling_logprobs[start:count]} if truncated else {}),
            **({"output_top_logprobs": request.top[start:count]} if request.num_top else {}),
        }

    def _final_fields(self) -> dict[str, Any]:
        routed = self._request.routed_experts
        return {
            "weight_versions": self._request.version_spans(),
            **({} if routed is None else {"routed_experts": b64encode(routed.numpy().tobytes()).decode()}),
            "e2e_latency": time.monotonic() - self._started,
            "response_sent_to_client_ts": time.time(),
        }
