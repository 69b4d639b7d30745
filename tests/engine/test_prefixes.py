"""Kept prefixes: the same tokens and logprobs as without them, and nothing of weights that are no longer served."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from support_calls import PROMPT, body_of, generate, logprobs_of
from support_logits import chosen, reference_logits
from support_model import make_tiny_model
from support_servers import EngineFactory, start_engine

from weir.engine.prefixes import KeptPrefixes, usual_num_tokens


def cached(answer: dict[str, Any]) -> int:
    number: int = answer["meta_info"]["cached_tokens"]
    return number


def assert_exact(answer: dict[str, Any], folder: Path, prompt: list[int]) -> None:
    logits = reference_logits(folder, prompt, answer["output_ids"])
    expected = chosen(logits, answer["output_ids"])
    torch.testing.assert_close(torch.tensor(logprobs_of(answer)), expected, atol=1e-5, rtol=0)


def test_the_next_turn_of_a_session_computes_only_what_is_new(
    engine_server: EngineFactory, tiny_model_dir: Path
) -> None:
    server = engine_server()
    first = generate(server, max_new_tokens=12)
    prompt = PROMPT + first["output_ids"] + [7, 8, 9]
    second = generate(server, prompt, max_new_tokens=12)
    assert cached(first) == 0
    assert cached(second) == len(PROMPT) + 11  # the last sampled token was in no forward pass
    assert_exact(second, tiny_model_dir, prompt)


def test_a_prompt_that_was_answered_computes_its_last_token_only(
    engine_server: EngineFactory, tiny_model_dir: Path
) -> None:
    server = engine_server()
    first, again = generate(server), generate(server)
    assert cached(again) == len(PROMPT) - 1
    assert again["output_ids"] == first["output_ids"]
    assert_exact(again, tiny_model_dir, PROMPT)


def test_new_weights_answer_without_the_old_ones_keys_and_values(engine_server: EngineFactory, tmp_path: Path) -> None:
    other_model_dir = make_tiny_model(tmp_path / "other", seed=9)
    server = engine_server()
    generate(server)
    update = {"model_path": str(other_model_dir), "weight_version": "1", "flush_cache": False}
    server.post("/update_weights_from_disk", update)
    answer = generate(server)
    assert cached(answer) == 0
    assert_exact(answer, other_model_dir, PROMPT)


def test_a_flush_drops_what_is_kept(engine_server: EngineFactory) -> None:
    server = engine_server()
    generate(server)
    server.client.post("/flush_cache").raise_for_status()
    assert cached(generate(server)) == 0


def test_a_crowd_that_shares_beginnings_gets_the_tokens_that_each_gets_alone(
    engine_server: EngineFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = engine_server()
    monkeypatch.setenv("WEIR_ENGINE__PREFIX_TOKENS", "0")
    without = engine_server()
    draw = random.Random(5)
    beginnings = [[draw.randrange(500) for _ in range(60)] for _ in range(3)]
    bodies = [
        body_of(
            draw.choice(beginnings)[: draw.choice([20, 60])] + [draw.randrange(500)] * draw.choice([0, 0, 3, 40]),
            max_new_tokens=draw.randrange(1, 60),
            temperature=1.0,
            sampling_seed=number,
        )
        for number in range(48)
    ]

    def answers(engine: Any) -> list[dict[str, Any]]:
        with ThreadPoolExecutor(len(bodies)) as pool:
            return list(pool.map(lambda body: engine.post("/generate", body), bodies))

    shared, apart = answers(server), answers(without)
    assert sum(map(cached, shared)) > 0 == sum(map(cached, apart))
    assert [answer["output_ids"] for answer in shared] == [answer["output_ids"] for answer in apart]
    for one, other in zip(shared, apart, strict=True):
        torch.testing.assert_close(logprobs_of(one), logprobs_of(other), atol=1e-5, rtol=0)


def test_a_sequence_replaces_what_it_continues_and_the_least_recently_used_leave() -> None:
    prefixes = KeptPrefixes(max_tokens=8)
    rows = [torch.full((1,), float(n)) for n in range(4)]
    prefixes.keep([1, 2], rows[0])
    prefixes.keep([1, 2, 3], rows[1])
    prefixes.keep([5, 6, 7, 8], rows[2])
    assert prefixes.longest([1, 2, 9]) == (rows[1], 2)
    prefixes.keep([9, 9, 9], rows[3])  # beyond eight tokens: [5, 6, 7, 8] was used before [1, 2, 3]
    assert prefixes.longest([5, 6]) == (None, 0)
    assert prefixes.longest([1, 2, 3, 4]) == (rows[1], 3)
    prefixes.keep(list(range(9)), rows[0])
    assert prefixes.longest([0, 1]) == (None, 0)


@pytest.mark.parametrize(
    ("context_len", "token_bytes", "kept"),
    [(4096, 1000, 8192), (32_768, 24_576, 32_768), (131_072, 24_576, 2**31 // 24_576), (40_960, 500_000, 8192)],
)
def test_a_whole_request_is_kept_by_default_where_memory_allows(context_len: int, token_bytes: int, kept: int) -> None:
    assert usual_num_tokens(context_len, token_bytes) == kept


def test_a_prompt_longer_than_what_is_kept_leaves_its_beginning(tiny_model_dir: Path, tmp_path: Path) -> None:
    engine = start_engine(tiny_model_dir, folder=tmp_path, env={"WEIR_ENGINE__PREFIX_TOKENS": "40"})
    try:
        prompt = [(7 * place) % 500 + 3 for place in range(100)]
        first, again = generate(engine, prompt), generate(engine, prompt)
        assert (cached(first), cached(again)) == (0, 40)
        assert again["output_ids"] == first["output_ids"]
        assert_exact(again, tiny_model_dir, prompt)
    finally:
        engine.stop()
