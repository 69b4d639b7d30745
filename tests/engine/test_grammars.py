"""Answers that keep to a grammar: always valid, drawn and reported from the masked distribution, refused where they
cannot be kept.
"""

from __future__ import annotations

import json
import math
import re
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from llguidance import LLMatcher, LLParserLimits, LLTokenizer
from support_calls import PROMPT, body_of, generate, logprobs_of, read_ledger, streamed, versions_of
from support_logits import reference_logits
from support_loop import run_request
from support_model import make_tiny_model
from support_servers import EngineFactory, ServerProcess, start_engine
from transformers import AutoTokenizer

from weir.engine.grammars import Matcher
from weir.engine.texts import Texts

TITLE = {
    "type": "object",
    "properties": {
        "title": {"type": "string", "maxLength": 12},
        "tags": {"type": "array", "items": {"enum": ["a", "b"]}},
    },
    "required": ["title", "tags"],
    "additionalProperties": False,
}
WORDS = tuple("".join(letters) for length in (1, 2, 3) for letters in product("abc", repeat=length))


@pytest.fixture(scope="module")
def server(tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    started = start_engine(tiny_model_dir, folder=tmp_path_factory.mktemp("engine"))
    yield started
    started.stop()


def drawn(server: ServerProcess, seed: int = 0, **sampling: Any) -> dict[str, Any]:
    return generate(server, **{"temperature": 1.0, "max_new_tokens": 400, "sampling_seed": seed} | sampling)


def masked(folder: Path, answer: dict[str, Any], words: tuple[str, ...], temperature: float) -> list[float]:
    """Logprobs of the output among the tokens that may come: those that keep it a beginning of one of `words`.

    Tried out token by token over the whole vocabulary, against the text that the tokenizer gives.
    """
    tokenizer = AutoTokenizer.from_pretrained(folder)
    output, end = answer["output_ids"], tokenizer.convert_tokens_to_ids("<|im_end|>")
    logits = reference_logits(folder, PROMPT, output) / temperature
    found = []
    for place, token in enumerate(output):
        text = tokenizer.decode(output[:place])
        longer = {one: tokenizer.decode([*output[:place], one]) for one in range(logits.shape[1]) if one != end}
        allowed = [one for one, way in longer.items() if way != text and any(word.startswith(way) for word in words)]
        allowed += [end] if text in words else []
        assert token in allowed
        found.append((logits[place, token] - torch.logsumexp(logits[place, allowed], 0)).item())
    return found


def test_every_finished_answer_is_valid_json_of_its_schema(server: ServerProcess) -> None:
    with ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(lambda seed: drawn(server, seed, json_schema=json.dumps(TITLE)), range(12)))
    finished = [answer for answer in answers if answer["meta_info"]["finish_reason"]["type"] == "stop"]
    assert len(finished) >= 6
    for answer in finished:
        value = json.loads(answer["text"])
        assert value.keys() == {"title", "tags"}
        assert len(value["title"]) <= 12
        assert set(value["tags"]) <= {"a", "b"}
    assert len({answer["text"] for answer in answers}) > 1


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_logprobs_are_those_of_the_distribution_under_the_grammar(
    server: ServerProcess, tiny_model_dir: Path, temperature: float
) -> None:
    for seed in range(4):
        answer = drawn(server, seed, regex="[abc]{1,3}", temperature=temperature)
        assert answer["text"] in WORDS
        assert answer["meta_info"]["finish_reason"]["type"] == "stop"
        assert logprobs_of(answer) == pytest.approx(masked(tiny_model_dir, answer, WORDS, temperature), abs=1e-4)


def test_greedy_and_truncated_draws_stay_within_the_grammar(server: ServerProcess, tiny_model_dir: Path) -> None:
    for sampling in ({"temperature": 0.0}, {"top_k": 1}, {"top_k": 3, "top_p": 0.9}, {"min_p": 0.2}):
        answer = drawn(server, 3, regex="[abc]{1,3}", **sampling)
        assert answer["text"] in WORDS
        assert logprobs_of(answer) == pytest.approx(masked(tiny_model_dir, answer, WORDS, 1.0), abs=1e-4)


def test_an_answer_under_a_grammar_does_not_depend_on_others_and_leaves_them_alone(server: ServerProcess) -> None:
    alone = drawn(server, 5, json_schema=json.dumps(TITLE))
    free = drawn(server, 9, max_new_tokens=60)
    with ThreadPoolExecutor(6) as pool:
        beside = [pool.submit(drawn, server, seed, regex="[a-z]{1,40}") for seed in range(4)]
        again = pool.submit(drawn, server, 5, json_schema=json.dumps(TITLE))
        free_again = pool.submit(drawn, server, 9, max_new_tokens=60)
        assert again.result()["output_ids"] == alone["output_ids"]
        assert free_again.result()["output_ids"] == free["output_ids"]
        assert all(re.fullmatch("[a-z]{1,40}", future.result()["text"]) for future in beside)


def test_a_pause_with_new_weights_keeps_the_grammar_and_the_ledger(
    engine_server: EngineFactory, tmp_path: Path
) -> None:
    server = engine_server(None)
    other = make_tiny_model(tmp_path / "other", vocab_size=512, seed=42)
    body = body_of(rid="split", temperature=1.0, max_new_tokens=200, sampling_seed=4, regex="[a-z]{150,160}")
    with streamed(server, body) as call:
        call.wait_for(3)
        server.post("/pause_generation", {"mode": "retract"})
        server.post("/update_weights_from_disk", {"model_path": str(other), "weight_version": "2"})
        server.post("/continue_generation")
        answer = call.last()
    assert re.fullmatch("[a-z]{150,160}", answer["text"])
    assert set(versions_of(answer)) == {"0", "2"}
    lines = read_ledger(server, "split")
    assert [line["token"] for line in lines] == answer["output_ids"]
    assert [line["logprob"] for line in lines] == logprobs_of(answer)


def test_a_grammar_in_ebnf_may_name_tokens(server: ServerProcess, tiny_model_dir: Path) -> None:
    close = AutoTokenizer.from_pretrained(tiny_model_dir).convert_tokens_to_ids("</tool_call>")
    grammar = f'start: " " arguments "}}\\n" <[{close}]>\narguments: %json {json.dumps(TITLE)}'
    answer = drawn(server, 1, ebnf=grammar, stop_token_ids=[close], no_stop_trim=True)
    assert answer["meta_info"]["finish_reason"] == {"type": "stop", "matched": close}
    arguments, rest = answer["text"].rsplit("}", 1)
    assert rest == "\n</tool_call>"
    assert json.loads(arguments).keys() == {"title", "tags"}


def test_the_end_of_the_grammar_ends_an_answer_that_ignores_the_end_of_turn(server: ServerProcess) -> None:
    answer = drawn(server, 2, regex="yes", ignore_eos=True)
    assert answer["text"] == "yes"
    assert answer["meta_info"]["finish_reason"]["type"] == "stop"


@pytest.mark.parametrize(
    ("sampling", "message"),
    [
        ({"json_schema": "{"}, "json_schema cannot be"),
        ({"json_schema": '{"type": "objekt"}'}, "objekt"),
        ({"json_schema": '{"not": {}}'}, "not"),
        ({"json_schema": '{"$ref": "http://127.0.0.1/x"}'}, "json_schema cannot be kept"),
        ({"regex": "(("}, "regex cannot be"),
        ({"ebnf": "root ::= other"}, "ebnf cannot be"),
        ({"json_schema": "{}", "regex": "a"}, "Only one of"),
        ({"regex": "a", "min_new_tokens": 2}, "min_new_tokens"),
        ({"structural_tag": "{}"}, "structural_tag"),
    ],
)
def test_a_grammar_that_cannot_be_kept_is_refused_with_its_reason(
    server: ServerProcess, sampling: dict[str, Any], message: str
) -> None:
    answer = server.client.post("/generate", json=body_of(**sampling))
    assert answer.status_code == 400
    assert message in answer.json()["error"]["message"]


def test_a_grammar_that_grows_too_complex_ends_its_answer_with_the_reason(tiny_model_dir: Path) -> None:
    serialized = Texts(tiny_model_dir).serialized
    assert serialized is not None
    grammar = LLMatcher(
        LLTokenizer(serialized, n_vocab=512, eos_token=[2]),
        LLMatcher.grammar_from_regex("(.*a.{18}b.*|.*b.{17}c.*){3}"),
        log_level=0,
        limits=LLParserLimits(max_lexer_states=60),
    )
    request = run_request(tiny_model_dir, matcher=Matcher(grammar, 512, [2]))
    assert len(request.output_ids) < 10
    assert request.finish is not None
    assert (request.finish["type"], request.finish["status_code"]) == ("abort", 500)
    assert request.finish["message"].startswith("The grammar cannot be kept: lexer error: too many states")


def test_an_engine_without_a_tokenizer_says_that_it_keeps_no_grammar(
    engine_server: EngineFactory, tiny_model_dir: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "no-tokenizer"
    folder.mkdir()
    for name in ("config.json", "model.safetensors"):
        shutil.copy(tiny_model_dir / name, folder / name)
    server = engine_server(folder)
    assert server.get("/server_info")["grammar_backend"] == "none"
    answer = server.client.post("/generate", json=body_of(regex="a"))
    assert answer.status_code == 400
    assert "tokenizer" in answer.json()["error"]["message"]
    assert math.isfinite(sum(logprobs_of(generate(server))))
