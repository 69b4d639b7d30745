"""The running batch: requests as rows of the cache, admitted and removed between any two steps.

Invariants: request i of `running` is row i of the cache, which holds keys and values of all its tokens but the newest;
a prompt's beginning is copied only from rows that were computed under the served weights. The batch samples tokens; its
owner interprets them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

import torch

from weir.engine.decoder import Decoder
from weir.engine.prefixes import KeptPrefixes, common_length
from weir.engine.request import Likeliest, Request
from weir.engine.sampling import Draws, SamplingRows, draw, sampling_rows


class Drawn(NamedTuple):
    """A token for each row, its logprob, the one after truncation (None where no row truncates), the likeliest."""

    tokens: list[int]
    logprobs: list[float]
    sampling_logprobs: list[float] | None = None
    top: list[Likeliest | None] | None = None

    @classmethod
    def of(cls, draws: Draws, requests: Sequence[Request]) -> Drawn:
        """From the draws for `requests`."""
        truncated = None if draws.truncated is None else draws.truncated.tolist()
        return cls(draws.tokens.tolist(), draws.logprobs.tolist(), truncated, _likeliest(draws, requests))


def _likeliest(draws: Draws, requests: Sequence[Request]) -> list[Likeliest | None] | None:
    """As many of the likeliest tokens as each row wants; None where none does."""
    if draws.top_logprobs is None or draws.top_ids is None:
        return None
    rows = zip(requests, draws.top_logprobs.tolist(), draws.top_ids.tolist(), strict=True)
    return [
        [(logprob, token, None) for logprob, token in zip(logprobs, ids, strict=True)][: request.num_top] or None
        for request, logprobs, ids in rows
    ]


class Batch:
    """The requests that the model works on."""

    def __init__(self, decoder: Decoder, *, prefix_tokens: int = 0) -> None:
        self.running: list[Request] = []
        self._decoder = decoder
        self._prefixes = KeptPrefixes(prefix_tokens)
        self._current: set[Request] = set()  # running requests whose rows are of the served weights alone
        self._tokens: torch.Tensor | None = None  # newest token of each row, (n,); None after the batch changed
        self._positions: torch.Tensor
        self._rows: SamplingRows
        self.num_prefilled = 0  # prompt tokens that were computed, not copied
        self._begun: tuple[Request, int] | None = None  # whose prompt stands in part behind the running rows, how much

    def num_missing(self, request: Request) -> int:
        """How many tokens of a waiting request are to compute; before its first piece, those count that it can copy."""
        return request.num_tokens - (self._begun[1] if self._begun is not None and self._begun[0] is request else 0)

    def advance(self, request: Request, num_tokens: int) -> None:
        """Compute a piece of a waiting request's prompt, without its last token; it is the next to be admitted."""
        row = len(self.running)
        prompt = (request.prompt_ids + request.output_ids)[:-1]
        self._decoder.cache.reserve(row + 1, len(prompt))
        start = self._begin(request, row)
        end = min(start + num_tokens, len(prompt))
        if end > start:
            hidden = self._decoder.extend([prompt[:end]], [start], row)
            hidden[0, -1, 0].item()  # so that a device has done the work when this returns
            self.num_prefilled += end - start
        self._begun = (request, end)

    def admit(self, requests: Sequence[Request]) -> Drawn:
        """Append `requests` to the running rows: prefill of prompt and kept output, and one sampled token for each.

        A request that `advance` began must be the first.
        """
        first_row, device = len(self.running), self._decoder.device
        computed, same_as = distinct(requests) if self._prefixes.max_tokens else (requests, range(len(requests)))
        prompts = [request.prompt_ids + request.output_ids for request in computed]
        self._decoder.cache.reserve(first_row + len(requests), max(map(len, prompts)))
        starts = [self._begin(request, first_row + i) for i, request in enumerate(computed)]
        if any(starts):
            hidden = self._decoder.extend(prompts, starts, first_row)
        else:
            hidden = self._decoder.prefill(prompts, first_row)
        self._begun = None
        self.num_prefilled += sum(map(len, prompts)) - sum(starts)
        self._append(requests, computed, same_as)
        last = torch.tensor([len(p) - 1 - start for p, start in zip(prompts, starts, strict=True)], device=device)
        logits = self._decoder.logits(hidden[torch.arange(len(prompts), device=device), last])
        for request, row in zip(requests, same_as, strict=True):
            if request.logprob_start is not None and request.input_logprobs is None:
                request.input_logprobs = self._input_logprobs(request, hidden[row])
        logits = logits[torch.tensor(same_as, device=device)]
        return Drawn.of(draw(logits, sampling_rows(requests, device), requests), requests)

    def _append(self, requests: Sequence[Request], computed: Sequence[Request], same_as: Sequence[int]) -> None:
        """Append the computed requests, whose rows are filled, and the others, whose rows are copies of those."""
        first_row = len(self.running)
        self.running.extend(computed)
        for request, source in zip(requests, same_as, strict=True):
            if request is not computed[source]:
                self._decoder.cache.move(first_row + source, len(self.running), request.num_tokens)
                request.cached_tokens = len(request.prompt_ids)
                self.running.append(request)
        self._current.update(requests)
        self._tokens = None

    def _begin(self, request: Request, row: int) -> int:
        """Copy the longest known beginning of a request's tokens to its row; returns its length.

        The last token is always computed, for its logits; all are where logprobs of the prompt are wanted.
        """
        if self._begun is not None and self._begun[0] is request:
            return self._begun[1]
        if not self._prefixes.max_tokens or request.logprob_start is not None:
            return 0
        tokens = request.prompt_ids + request.output_ids
        kept, length = self._prefixes.longest(tokens[:-1])
        source: int | None = None
        for other, running in enumerate(self.running):
            if running in self._current and (running.prompt_ids[: length + 1] == tokens[: length + 1]):
                common = min(
                    common_length(tokens[:-1], running.prompt_ids + running.output_ids), running.num_tokens - 1
                )
                if common > length:
                    source, length = other, common
        if source is not None:
            self._decoder.cache.move(source, row, length)
        elif kept is not None:
            self._decoder.cache.paste(row, kept, length)
        request.cached_tokens = min(length, len(request.prompt_ids))
        return length

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
        draws = draw(logits, self._rows, self.running)
        self._tokens = draws.tokens
        self._positions = self._positions + 1
        return Drawn.of(draws, self.running)

    def remove(self, leaving: Collection[Request]) -> None:
        """Remove requests; the last rows fill their places, so that the batch stays dense."""
        for request in leaving:
            row = self.running.index(request)
            self._keep(request, row)
            if request.routed_start is not None:
                end = request.num_tokens - 1
                request.routed_experts = self._decoder.cache.routed(row, min(request.routed_start, end), end)
            last = self.running.pop()
            if last is not request:
                self._decoder.cache.move(len(self.running), row, last.num_tokens)
                self.running[row] = last
            if self._begun is not None:  # it stays right behind the running rows
                self._decoder.cache.move(len(self.running) + 1, len(self.running), self._begun[1])
            self._tokens = None

    def drop_begun(self, unless: Request | None = None) -> None:
        """Give up a prompt that was computed in part, unless it is that of `unless`."""
        if self._begun is not None and self._begun[0] is not unless:
            self._begun = None

    def forget_prefixes(self) -> None:
        """Copy no beginnings from what was computed until now: the weights have changed."""
        self._begun = None
        self._prefixes.clear()
        self._current.clear()

    def _keep(self, request: Request, row: int) -> None:
        if request in self._current:
            self._current.remove(request)
            if self._prefixes.max_tokens:
                tokens = (request.prompt_ids + request.output_ids)[:-1][: self._prefixes.max_tokens]
                self._prefixes.keep(tokens, self._decoder.cache.copy_of(row, len(tokens)))

    def retract(self) -> list[Request]:
        """Remove all requests, to be admitted again later; returns them in their order."""
        retracted, self.running = self.running, []
        self._tokens = None
        self._begun = None
        self._current.clear()
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


def distinct(requests: Sequence[Request]) -> tuple[list[Request], list[int]]:
    """The requests with different tokens to compute, and for each request which of these has its tokens."""
    places: dict[tuple[object, ...], int] = {}
    computed: list[Request] = []
    same_as = []
    for request in requests:
        key = (request.logprob_start is None, *request.prompt_ids, *request.output_ids)
        if key not in places:
            places[key] = len(computed)
            computed.append(request)
        same_as.append(places[key])
    return computed, same_as
