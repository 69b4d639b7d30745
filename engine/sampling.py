"""Sampling: one token and its logprob for each row of logits, vectorised over rows.

Invariants: a logprob is that of the distribution after penalties, grammar, bias and temperature and before top_k, top_p
and min_p, as SGLang reports it (its sampler takes the log of the probabilities that it then truncates); greedy rows
report that at temperature 1. A row's token is a function of its logits, its seed and its position alone, whatever else
is in the batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch

from weir.engine.params import Sampling
from weir.engine.request import Request

_MASK64 = (1 << 64) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingRows:
    """The sampling parameters of a batch as tensors, built when the batch changes; None where no row needs one."""

    all_greedy: bool
    greedy: torch.Tensor | None  # (n,)
    temperature: torch.Tensor | None  # (n, 1)
    truncation: tuple[torch.Tensor, torch.Tensor, torch.Tensor] | None  # top_k, top_p, min_p, each (n, 1)
    penalised: tuple[int, ...]  # rows whose logits depend on their own output
    constrained: tuple[int, ...]  # rows that must keep to a grammar
    bias: tuple[torch.Tensor, torch.Tensor, torch.Tensor] | None  # rows, token ids, what is added; each (entries,)
    num_top: int  # the likeliest tokens that some row wants


def sampling_rows(requests: Sequence[Request], device: torch.device) -> SamplingRows:
    """Gather the parameters of `requests`."""
    samplings = [request.sampling for request in requests]

    def column(values: Sequence[float]) -> torch.Tensor:
        return torch.tensor(values, device=device)[:, None]

    truncation = None
    if any(sampling.truncates for sampling in samplings):
        kept = [sampling.top_k if sampling.truncates and sampling.top_k > 0 else 1 << 30 for sampling in samplings]
        mass = [1.0 if sampling.greedy else sampling.top_p for sampling in samplings]
        floor = [0.0 if sampling.greedy else sampling.min_p for sampling in samplings]
        truncation = (column(kept), column(mass), column(floor))
    some_greedy = any(sampling.greedy for sampling in samplings)
    return SamplingRows(
        all_greedy=all(sampling.greedy for sampling in samplings),
        greedy=torch.tensor([sampling.greedy for sampling in samplings], device=device) if some_greedy else None,
        temperature=(
            column([sampling.temperature for sampling in samplings])
            if any(sampling.temperature != 1.0 for sampling in samplings)
            else None
        ),
        truncation=truncation,
        penalised=tuple(row for row, sampling in enumerate(samplings) if sampling.penalises),
        constrained=tuple(row for row, request in enumerate(requests) if request.matcher is not None),
        bias=_bias(samplings, device),
        num_top=max((request.num_top for request in requests), default=0),
    )


def _bias(
    samplings: Sequence[Sampling], device: torch.device
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor] | None:
    entries = [(row, *entry) for row, sampling in enumerate(samplings) for entry in sampling.bias]
    if not entries:
        return None
    rows, ids, values = zip(*entries, strict=True)
    return (
        torch.tensor(rows, device=device),
        torch.tensor(ids, device=device),
        torch.tensor(values, device=device, dtype=torch.float32),
    )


class Draws(NamedTuple):
    """Tokens (n,), their logprobs (n,), and those after truncation, (n,), None without any.

    `top_logprobs` and `top_ids` (n, k) are the k likeliest tokens of each row before truncation, None if unwanted.
    """

    tokens: torch.Tensor
    logprobs: torch.Tensor
    truncated: torch.Tensor | None
    top_logprobs: torch.Tensor | None
    top_ids: torch.Tensor | None


def draw(logits: torch.Tensor, rows: SamplingRows, requests: Sequence[Request]) -> Draws:
    """One token for each row of logits (n, vocabulary) float32; may write into `logits`."""
    for row in rows.penalised:
        penalise(logits[row], requests[row])
    for row in rows.constrained:
        constrain(logits[row], requests[row])
    if rows.bias is not None:
        logits[rows.bias[:2]] += rows.bias[2]
    if rows.temperature is not None:
        logits = logits / rows.temperature
    logprobs = torch.log_softmax(logits, dim=-1)
    whole = logprobs
    if rows.truncation is not None:
        logprobs = truncate(logprobs, *rows.truncation)
    if rows.all_greedy:
        tokens = logprobs.argmax(dim=-1)
    else:
        uniforms = [uniform(request.seed, request.num_tokens) for request in requests]
        tokens = invert(logprobs, torch.tensor(uniforms, dtype=torch.float64, device=logits.device))
        if rows.greedy is not None:
            tokens = torch.where(rows.greedy, logprobs.argmax(dim=-1), tokens)
    truncated = None if rows.truncation is None else logprobs.gather(1, tokens[:, None])[:, 0]
    top_logprobs, top_ids = whole.topk(rows.num_top, dim=-1) if rows.num_top else (None, None)
    if top_logprobs is not None:
        top_logprobs.clamp_(min=torch.finfo(top_logprobs.dtype).min)  # as SGLang reports what a grammar forbids
    return Draws(tokens, whole.gather(1, tokens[:, None])[:, 0], truncated, top_logprobs, top_ids)


def invert(logprobs: torch.Tensor, uniforms: torch.Tensor) -> torch.Tensor:
    """Inverse transform sampling: the tokens, (n,), where the float64 cumulative probability passes `uniforms` (n,)."""
    cumulated = logprobs.exp().cumsum(dim=-1, dtype=torch.float64)
    targets = uniforms[:, None] * cumulated[:, -1:]
    return torch.searchsorted(cumulated, targets, right=True)[:, 0].clamp_(max=logprobs.shape[-1] - 1)


def truncate(logprobs: torch.Tensor, top_k: torch.Tensor, top_p: torch.Tensor, min_p: torch.Tensor) -> torch.Tensor:
    """Apply top_k, top_p (tokens with less mass before them) and min_p (relative to the best), and renormalise."""
    ranked, order = logprobs.sort(dim=-1, descending=True, stable=True)
    probs = ranked.exp()
    before = probs.cumsum(dim=-1) - probs
    rank = torch.arange(ranked.shape[-1], device=ranked.device)
    dropped = (rank >= top_k) | ((before > top_p) & (top_p < 1.0)) | (probs < min_p * probs[:, :1])
    ranked = ranked.masked_fill(dropped, float("-inf")).log_softmax(dim=-1)
    return torch.empty_like(ranked).scatter_(1, order, ranked)


def penalise(logits: torch.Tensor, request: Request) -> None:
    """Apply the penalties of one request to its logits (vocabulary,), in place; they count output tokens only."""
    sampling = request.sampling
    if request.output_ids:
        drawn = torch.tensor(request.output_ids, device=logits.device)
        counts = torch.bincount(drawn, minlength=logits.shape[0])
        logits -= sampling.frequency_penalty * counts + sampling.presence_penalty * (counts > 0)
        scaled = torch.where(logits < 0, logits * sampling.repetition_penalty, logits / sampling.repetition_penalty)
        logits.copy_(torch.where(counts > 0, scaled, logits))
    if len(request.output_ids) < sampling.min_new_tokens:
        logits[list(sampling.suppressed_ids)] = float("-inf")


def constrain(logits: torch.Tensor, request: Request) -> None:
    """Leave the tokens that a request's grammar allows in its logits (vocabulary,), in place."""
    assert request.matcher is not None
    logits.masked_fill_(request.matcher.forbidden().to(logits.device), float("-inf"))


def uniform(seed: int, position: int) -> float:
    """A number in [0, 1) from seed and position: SplitMix64 (Steele et al., 2014), 53 bits."""
    state = (seed * 0x9E3779B97F4A7C15 + (position + 1) * 0xD1B54A32D192ED03) & _MASK64
    for _ in range(2):
        state = (state + 0x9E3779B97F4A7C15) & _MASK64
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK64
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _MASK64
        state ^= state >> 31
    return (state >> 11) * 2.0**-53
