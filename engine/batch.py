"""The running batch: requests as rows of the cache, admitted and removed between any two steps.

Invariant: request i of `running` is row i of the cache, which holds keys and values of all its tokens but the newest.
The batch samples tokens; its owner interprets them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch

from weir.engine.decoder import Decoder
from weir.engine.request import Request
from weir.engine.sampling import SamplingRows, draw, sampling_rows

Drawn = tuple[list[int], list[float]]  # a token and its logprob for each row


class Batch:
    """The requests that the model works on."""

    def __init__(self, decoder: Decoder) -> None:
        self.running: list[Request] = []
        self._decoder = decoder
        self._tokens: torch.Tensor | None = None  # newest token of each row, (n,); None after the batch changed
        self._positions: torch.Tensor
        self._rows: SamplingRows

    def admit(self, requests: Sequence[Request]) -> Drawn:
        """Append `requests` to the running rows: prefill of prompt and kept output, and one sampled token for each."""
        prompts = [request.prompt_ids + request.output_ids for request in requests]
        hidden = self._decoder.prefill(prompts, len(self.running))
        self.running.extend(requests)
        self._tokens = None
        last = torch.tensor([len(prompt) - 1 for prompt in prompts], device=hidden.device)
        logits = self._decoder.logits(hidden[torch.arange(len(prompts), device=hidden.device), last])
        for row, request in enumerate(requests):
            if request.logprob_start is not None and request.input_logprobs is None:
                request.input_logprobs = self._input_logprobs(request, hidden[row])
        tokens, logprobs = draw(logits, sampling_rows(requests, self._decoder.device), requests)
        return tokens.tolist(), logprobs.tolist()

    def step(self) -> Drawn:
        """Sample one more token for every running request."""
        lengths = [request.num_tokens for request in self.running]
        if self._tokens is None:
            device = self._decoder.device
            self._tokens = torch.tensor([request.output_ids[-1] for request in self.running], device=device)
            self._positions = torch.tensor([length - 1 for length in lengths], device=device)
            self._rows = sampling_rows(self.running, device)
        longest = max(lengths)
        logits = self._decoder.decode(self._tokens, self._positions, longest=longest, equal=min(lengths) == longest)
        self._tokens, logprobs = draw(logits, self._rows, self.running)
        self._positions = self._positions + 1
        return self._tokens.tolist(), logprobs.tolist()

    def remove(self, leaving: Collection[Request]) -> None:
        """Remove requests; the last rows fill their places, so that the batch stays dense."""
        for request in leaving:
            row = self.running.index(request)
            last = self.running.pop()
            if last is not request:
                self._decoder.cache.move(len(self.running), row, last.num_tokens)
                self.running[row] = last
            self._tokens = None

    def retract(self) -> list[Request]:
        """Remove all requests, to be admitted again later; returns them in their order."""
        retracted, self.running = self.running, []
        self._tokens = None
        for request in retracted:
            request.num_retractions += 1
        return retracted

    def _input_logprobs(self, request: Request, hidden: torch.Tensor) -> list[tuple[float | None, int, None]]:
        """Logprobs of the prompt's tokens from `logprob_start` on; the first has none, as in SGLang."""
        start = request.logprob_start or 0
        wanted = request.prompt_ids[start:]
        logprobs = self._decoder.logits(hidden[start : len(request.prompt_ids) - 1]).log_softmax(dim=-1)
        ids = torch.tensor(wanted[1:], device=hidden.device, dtype=torch.int64)
        known = logprobs.gather(1, ids[:, None])[:, 0].tolist()
        pairs = zip(known, wanted[1:], strict=True)
        return [(None, wanted[0], None), *((logprob, token, None) for logprob, token in pairs)]
