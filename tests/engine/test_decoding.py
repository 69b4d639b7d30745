"""Sampled tokens and logprobs against transformers' forward pass, alone and in a batch."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from support_calls import PROMPT, body_of, generate, logprobs_of, streamed
from support_logits import chosen, kept_logprobs, reference_logits
from support_model import Family, make_tiny_model
from support_servers import EngineFactory


@pytest.mark.parametrize(("family", "tied"), [("qwen3", True), ("qwen3", False), ("qwen2", True), ("llama", False)])
def test_greedy_tokens_and_logprobs_are_those_of_the_models_own_forward_pass(
    engine_server: EngineFactory, tmp_path: Path, family: Family, tied: bool
) -> None:
    folder = make_tiny_model(tmp_path / "model", family=family, tied=tied, seed=3)
    answer = generate(engine_server(folder), max_new_tokens=40)
    logits = reference_logits(folder, PROMPT, answer["output_ids"])
    assert answer["output_ids"] == logits.argmax(-1).tolist()
    torch.testing.assert_close(
        torch.tensor(logprobs_of(answer)), chosen(logits, answer["output_ids"]), atol=1e-5, rtol=0
    )


def test_logprobs_belong_to_the_distribution_after_temperature_and_before_truncation(
    engine_server: EngineFactory, tiny_model_dir: Path
) -> None:
    server = engine_server()
    warm = generate(server, temperature=0.7, max_new_tokens=40)
    logits = reference_logits(tiny_model_dir, PROMPT, warm["output_ids"]) / 0.7
    expected = chosen(logits, warm["output_ids"])
    torch.testing.assert_close(torch.tensor(logprobs_of(warm)), expected, atol=1e-5, rtol=0)

    cut = generate(server, temperature=1.3, top_k=5, max_new_tokens=40)
    logits = reference_logits(tiny_model_dir, PROMPT, cut["output_ids"]) / 1.3
    drawn = torch.tensor(cut["output_ids"])[:, None]
    assert (logits.topk(5, dim=-1).indices == drawn).any(dim=-1).all()
    expected = chosen(logits, cut["output_ids"])
    torch.testing.assert_close(torch.tensor(logprobs_of(cut)), expected, atol=1e-5, rtol=0)


def test_truncated_answers_also_have_the_logprobs_among_the_kept_tokens(
    engine_server: EngineFactory, tiny_model_dir: Path
) -> None:
    server = engine_server()
    truncations: list[dict[str, Any]] = [{"top_k": 5}, {"top_p": 0.6}, {"min_p": 0.4}]
    for truncation in truncations:
        body = body_of(temperature=1.3, max_new_tokens=20, **truncation)
        with streamed(server, body) as call:
            last = call.last()
        for answer in (server.post("/generate", body), last):
            logits = reference_logits(tiny_model_dir, PROMPT, answer["output_ids"]) / 1.3
            expected = kept_logprobs(logits, answer["output_ids"], **truncation)
            assert answer["meta_info"]["output_token_sampling_logprobs"] == pytest.approx(expected, abs=1e-4)
    whole = generate(server, temperature=1.3)
    assert "output_token_sampling_logprobs" not in whole["meta_info"]


def test_prompt_logprobs_start_where_asked_and_the_first_has_none(
    engine_server: EngineFactory, tiny_model_dir: Path
) -> None:
    answer = engine_server().post("/generate", body_of(max_new_tokens=1) | {"logprob_start_len": 3})
    first, *others = answer["meta_info"]["input_token_logprobs"]
    assert first == [None, PROMPT[3], None]
    assert [token for _, token, _ in others] == PROMPT[4:]
    logits = reference_logits(tiny_model_dir, PROMPT[:4], PROMPT[4:])
    torch.testing.assert_close(
        torch.tensor([logprob for logprob, _, _ in others]), chosen(logits, PROMPT[4:]), atol=1e-5, rtol=0
    )


def test_a_crowd_of_unequal_requests_gets_the_tokens_that_each_gets_alone(engine_server: EngineFactory) -> None:
    server = engine_server()
    draw = random.Random(5)
    bodies = [
        body_of(
            [draw.randrange(500) for _ in range(draw.randrange(1, 120))],
            max_new_tokens=draw.randrange(1, 90),
            temperature=draw.choice([0.0, 0.8]),
            sampling_seed=number,
        )
        for number in range(24)
    ]
    alone = [server.post("/generate", body) for body in bodies]
    with ThreadPoolExecutor(len(bodies)) as pool:
        together = list(pool.map(lambda body: server.post("/generate", body), bodies))
    assert [answer["output_ids"] for answer in together] == [answer["output_ids"] for answer in alone]
    for crowded, single in zip(together, alone, strict=True):
        torch.testing.assert_close(logprobs_of(crowded), logprobs_of(single), atol=1e-5, rtol=0)


def test_a_seed_fixes_the_tokens_and_another_seed_gives_others(engine_server: EngineFactory) -> None:
    server = engine_server()

    def draw(seed: int | None) -> Any:
        return generate(server, temperature=1.0, max_new_tokens=30, sampling_seed=seed)["output_ids"]

    assert draw(7) == draw(7)
    assert draw(7) != draw(8)
    assert draw(None) != draw(None)


def test_a_seeded_answer_continues_alike_when_its_beginning_is_sent_as_prompt(engine_server: EngineFactory) -> None:
    server = engine_server()
    whole = generate(server, temperature=1.0, max_new_tokens=30, sampling_seed=11)["output_ids"]
    rest = generate(server, PROMPT + whole[:10], temperature=1.0, max_new_tokens=20, sampling_seed=11)["output_ids"]
    assert rest == whole[10:]


def test_more_requests_than_rows_all_come_to_their_turn(engine_server: EngineFactory) -> None:
    server = engine_server(None, "--max-running", "3")
    with ThreadPoolExecutor(10) as pool:
        answers = list(pool.map(lambda n: generate(server, [n + 1] * (n + 1), max_new_tokens=20), range(10)))
    assert [len(answer["output_ids"]) for answer in answers] == [20] * 10


def test_one_token_prompts_and_full_contexts_are_served(engine_server: EngineFactory) -> None:
    server = engine_server(None, "--max-model-len", "300")
    assert len(generate(server, [5], max_new_tokens=299)["output_ids"]) == 299
    assert len(generate(server, [5] * 299, max_new_tokens=1)["output_ids"]) == 1
    clipped = server.post("/generate", {"input_ids": [5] * 290, "sampling_params": {"ignore_eos": True}})
    assert clipped["meta_info"]["finish_reason"] == {"type": "length", "length": 10}
