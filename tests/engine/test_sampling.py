"""Sampling, against values computed by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from weir.engine.batch import Drawn
from weir.engine.errors import BadRequest
from weir.engine.params import SamplingParams, parse_body, resolve_sampling
from weir.engine.request import Request
from weir.engine.sampling import draw, invert, penalise, sampling_rows, truncate, uniform

PROBS = [0.5, 0.25, 0.15, 0.1]


def log(probs: list[float]) -> torch.Tensor:
    return torch.tensor([probs]).log()


def cut(*, top_k: int = 1 << 30, top_p: float = 1.0, min_p: float = 0.0) -> list[float]:
    columns = [torch.tensor([[value]]) for value in (top_k, top_p, min_p)]
    return [round(value, 5) for value in truncate(log(PROBS), *columns).exp()[0].tolist()]


def request_with(output: list[int], num_top: int = 0, **params: Any) -> Request:
    sampling = resolve_sampling(
        SamplingParams(**params), prompt_len=1, context_len=100, vocab_size=4, eos_ids=frozenset({3})
    )
    request = Request(
        rid="r",
        prompt_ids=[0],
        sampling=sampling,
        seed=1,
        stream=False,
        return_logprob=True,
        logprob_start=None,
        num_top=num_top,
        changed=lambda: None,
    )
    for token in output:
        request.record(token, -1.0, "0", sampling_logprob=-1.0)
    return request


def test_truncation_keeps_the_best_and_renormalises() -> None:
    assert cut(top_k=2) == [0.66667, 0.33333, 0.0, 0.0]
    assert cut(top_p=0.6) == [0.66667, 0.33333, 0.0, 0.0]
    assert cut(top_p=0.5) == [0.66667, 0.33333, 0.0, 0.0]  # a token stays while no more than top_p lies before it
    assert cut(top_p=0.4) == [1.0, 0.0, 0.0, 0.0]
    assert cut(min_p=0.29) == [0.55556, 0.27778, 0.16667, 0.0]
    assert cut() == PROBS


def test_the_inverse_of_the_cumulated_probability_picks_the_token_under_the_number() -> None:
    numbers = torch.tensor([0.0, 0.49, 0.51, 0.74, 0.76, 0.999], dtype=torch.float64)
    assert invert(log(PROBS).expand(6, -1), numbers).tolist() == [0, 0, 1, 1, 2, 3]
    never_zero = log([0.0, 1.0, 0.0, 0.0])
    assert invert(never_zero, torch.tensor([0.0], dtype=torch.float64)).tolist() == [1]


def test_draws_follow_the_distribution() -> None:
    numbers = torch.tensor([uniform(seed, 17) for seed in range(20000)], dtype=torch.float64)
    shares = invert(log(PROBS).expand(20000, -1), numbers).bincount(minlength=4) / 20000
    torch.testing.assert_close(shares, torch.tensor(PROBS), atol=0.015, rtol=0)


@settings(max_examples=200, deadline=None)
@given(st.integers(-(2**63), 2**63 - 1), st.integers(0, 2**20))
def test_the_number_depends_on_seed_and_position_and_lies_below_one(seed: int, position: int) -> None:
    assert 0.0 <= uniform(seed, position) < 1.0
    assert uniform(seed, position) == uniform(seed, position) != uniform(seed, position + 1)


def test_penalties_count_the_output_and_hold_back_the_end_of_turn() -> None:
    logits = torch.tensor([2.0, -2.0, 1.0, 5.0])
    penalise(logits, request_with([0, 0, 1], frequency_penalty=0.5, presence_penalty=0.25, min_new_tokens=4))
    assert logits.tolist() == [0.75, -2.75, 1.0, -math.inf]
    logits = torch.tensor([2.0, -2.0, 1.0, 5.0])
    penalise(logits, request_with([0, 1], repetition_penalty=2.0))
    assert logits.tolist() == [1.0, -4.0, 1.0, 5.0]


def test_a_greedy_row_reports_the_whole_distribution_beside_a_sampled_one() -> None:
    requests = [request_with([], temperature=0.0, top_p=0.1), request_with([], temperature=2.0, top_k=2)]
    logits = torch.tensor([PROBS, PROBS]).log()
    tokens, logprobs, kept, *_ = draw(logits.clone(), sampling_rows(requests, torch.device("cpu")), requests)
    assert tokens[0] == 0
    assert math.isclose(logprobs[0], math.log(0.5), abs_tol=1e-6)
    warm = [math.sqrt(share) for share in PROBS]
    assert tokens[1] < 2, "top_k = 2 truncates what is drawn from, and not what is reported"
    assert math.isclose(logprobs[1].exp(), warm[tokens[1]] / sum(warm), abs_tol=1e-6)
    assert math.isclose(kept[1].exp(), warm[tokens[1]] / sum(warm[:2]), abs_tol=1e-6)


def test_a_bias_and_the_likeliest_tokens_belong_to_their_row_alone() -> None:
    biased = request_with([], 3, temperature=0.0, logit_bias={"3": 2.0, "0": -5.0})
    requests = [request_with([], temperature=0.0), biased, request_with([], 1, temperature=2.0, top_p=0.1)]
    drawn = Drawn.of(draw(log(PROBS).repeat(3, 1), sampling_rows(requests, torch.device("cpu")), requests), requests)
    assert drawn.tokens[:2] == [0, 3]
    weights = [0.5 * math.exp(-5), 0.25, 0.15, 0.1 * math.exp(2)]
    expected = [math.log(weights[token] / sum(weights)) for token in (3, 1, 2)]
    assert drawn.top is not None and drawn.top[0] is None and drawn.top[1] is not None and drawn.top[2] is not None
    assert [token for _, token, _ in drawn.top[1]] == [3, 1, 2]
    assert [logprob for logprob, *_ in drawn.top[1]] == pytest.approx(expected, abs=1e-6)
    assert drawn.logprobs[1] == drawn.top[1][0][0]
    warm = [math.sqrt(share) for share in PROBS]
    assert [math.exp(logprob) for logprob, *_ in drawn.top[2]] == pytest.approx([warm[0] / sum(warm)], abs=1e-6)


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"temperature": -1}, "temperature must be a non-negative finite number"),
        ({"top_p": 0}, "top_p must be in (0, 1]"),
        ({"top_k": 0}, "top_k must be -1 (disable) or at least 1"),
        ({"min_p": 1.5}, "min_p must be in [0, 1]"),
        ({"frequency_penalty": 3}, "frequency_penalty must be in [-2, 2]"),
        ({"repetition_penalty": 0}, "repetition_penalty must be in (0, 2]"),
        ({"max_new_tokens": -1}, "max_new_tokens must be at least 0"),
        ({"max_new_tokens": 2, "min_new_tokens": 3}, "min_new_tokens must be in [0, max_new_tokens(2)]"),
        ({"n": 2}, "n must be 1"),
        ({"stop": [""]}, "stop strings cannot be empty"),
        ({"sampling_seed": 2**63 - 1 + 1}, "sampling_seed must be in"),
        ({"logit_bias": {"4": 1.0}}, "logit_bias must have keys in [0, 3], got '4'"),
        ({"logit_bias": {"-1": 1.0}}, "logit_bias must have keys in [0, 3], got '-1'"),
        ({"logit_bias": {"1": math.inf}}, "logit_bias must have finite values"),
    ],
)
def test_values_out_of_range_are_refused_by_name(params: dict[str, object], said: str) -> None:
    with pytest.raises(BadRequest) as raised:
        resolve_sampling(SamplingParams(**params), prompt_len=1, context_len=100, vocab_size=4, eos_ids=frozenset())  # type: ignore[arg-type]
    assert said in str(raised.value)


def test_what_is_not_offered_is_refused_and_unknown_fields_of_the_body_are_ignored() -> None:
    assert parse_body(b'{"input_ids": [1], "priority": 3}').input_ids == [1]
    for body in (b'{"input_ids": [1], "image_data": "x"}', b'{"input_ids": [1], "sampling_params": {"bogus": "a"}}'):
        with pytest.raises(BadRequest):
            parse_body(body)
