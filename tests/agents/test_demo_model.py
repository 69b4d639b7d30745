"""The demo's tokenizer and model, as transformers loads them and as the renderer for Qwen3 uses them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from renderers import Qwen3RendererConfig, create_renderer
from transformers import AutoModelForCausalLM, AutoTokenizer

from weir.agents.corpus import Example, corpus_texts, make_corpus
from weir.agents.tasks import load_tasks
from weir.scripts.demo_loop.model import CONTROL_TOKENS, MARKUP_TOKENS, VOCABULARY_SIZE, train_tokenizer, write_model

EXAMPLES = Path(__file__).parents[2] / "agents" / "examples"
CORPUS = make_corpus(0, 1500)
TWO_TURNS = [example for example in CORPUS if len(example.messages) == 4]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("demo_model")
    write_model(path, train_tokenizer(corpus_texts(CORPUS), path), seed=0)
    return path


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> Any:
    return AutoTokenizer.from_pretrained(folder)


@pytest.fixture(scope="module", params=[{"enable_thinking": False}, {"thinking_retention": "all"}], ids=str)
def renderer(request: pytest.FixtureRequest, tokenizer: Any) -> Any:
    return create_renderer(tokenizer, Qwen3RendererConfig(**request.param))


def messages_of(example: Example) -> list[dict[str, str]]:
    return [{"role": message.role, "content": message.content} for message in example.messages]


def answer_ids(tokenizer: Any, text: str) -> list[int]:
    return [*tokenizer.encode(text, add_special_tokens=False), tokenizer.convert_tokens_to_ids("<|im_end|>")]


def test_every_text_survives_encode_and_decode(tokenizer: Any) -> None:
    strange = ["", " ", "a  b . c , d 's\n\n\n", "ünï – 漢字 🙂\t\r\n", "\x00\x7f", "<think>no</think>"]
    texts = [message.content for example in CORPUS[:300] for message in example.messages]
    for text in strange + texts + [task.reference_src for task in load_tasks(EXAMPLES)]:
        assert tokenizer.decode(tokenizer.encode(text, add_special_tokens=False)) == text


def test_qwen3s_special_tokens_are_single_tokens(tokenizer: Any) -> None:
    assert len(tokenizer) == VOCABULARY_SIZE
    for token in CONTROL_TOKENS + MARKUP_TOKENS:
        assert len(tokenizer.encode(token, add_special_tokens=False)) == 1
    assert (tokenizer.eos_token, tokenizer.pad_token) == ("<|im_end|>", "<|endoftext|>")


def test_pieces_are_long_enough_for_a_small_model(renderer: Any, tokenizer: Any) -> None:
    prompts = [len(renderer.render_ids(messages_of(e)[:1], add_generation_prompt=True)) for e in CORPUS]
    answers = [len(answer_ids(tokenizer, e.messages[1].content)) for e in CORPUS]
    assert sum(prompts) / len(prompts) < 20
    assert 45 < sum(answers) / len(answers) < 65


def test_an_answer_parses_back_to_its_text(renderer: Any, tokenizer: Any) -> None:
    for example in CORPUS[:300]:
        prompt = renderer.render_ids(messages_of(example)[:1], add_generation_prompt=True)
        parsed = renderer.parse_response(answer_ids(tokenizer, example.messages[1].content), prompt_ids=prompt)
        assert parsed.content == example.messages[1].content
        assert not parsed.tool_calls
        assert not parsed.reasoning_content


def test_a_bridged_second_turn_starts_with_the_exact_ids_and_equals_the_full_rendering(
    renderer: Any, tokenizer: Any
) -> None:
    for example in TWO_TURNS[:100]:
        messages = messages_of(example)
        prompt = renderer.render_ids(messages[:1], add_generation_prompt=True)
        answer = answer_ids(tokenizer, messages[1]["content"])
        bridged = renderer.bridge_to_next_turn(prompt, answer, messages[2:3]).token_ids
        assert bridged[: len(prompt) + len(answer)] == prompt + answer
        assert bridged == renderer.render_ids(messages[:3], add_generation_prompt=True)


def test_with_thinking_off_an_answer_follows_its_prompt_in_the_full_rendering(tokenizer: Any) -> None:
    renderer = create_renderer(tokenizer, Qwen3RendererConfig(enable_thinking=False))
    newline = tokenizer.encode("\n", add_special_tokens=False)
    for example in CORPUS[:300]:
        messages = messages_of(example)
        prompt = renderer.render_ids(messages[:-1], add_generation_prompt=True)
        assert renderer.render_ids(messages) == prompt + answer_ids(tokenizer, messages[-1]["content"]) + newline


def test_the_chat_template_renders_what_the_renderer_does(tokenizer: Any) -> None:
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "# out[i] = relu(x[i]) * 3"},
        {"role": "assistant", "content": "no"},
        {"role": "user", "content": "again"},
    ]
    tools = [{"type": "function", "function": {"name": "run", "parameters": {"type": "object"}}}]
    for thinking in (True, False):
        renderer = create_renderer(tokenizer, Qwen3RendererConfig(enable_thinking=thinking))
        for given in (None, tools):
            assert tokenizer.apply_chat_template(
                messages, tools=given, add_generation_prompt=True, enable_thinking=thinking, return_dict=False
            ) == renderer.render_ids(messages, tools=given, add_generation_prompt=True)


def test_the_model_loads_and_has_about_two_million_parameters(folder: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(folder)
    assert 1_500_000 < sum(parameter.numel() for parameter in model.parameters()) < 2_500_000
    assert str(model.dtype) == "torch.float32"
    assert model.config.max_position_embeddings == 1024
    assert model.config.tie_word_embeddings
    assert sorted(path.name for path in folder.glob("*.safetensors")) == ["model.safetensors"]


def test_the_same_seed_gives_the_same_folder_and_another_one_other_weights(folder: Path, tmp_path: Path) -> None:
    write_model(tmp_path / "same", train_tokenizer(corpus_texts(CORPUS), tmp_path / "same"), seed=0)
    for name in ("tokenizer.json", "config.json", "model.safetensors"):
        assert (tmp_path / "same" / name).read_bytes() == (folder / name).read_bytes()
    write_model(tmp_path / "other", AutoTokenizer.from_pretrained(folder), seed=1)
    assert (tmp_path / "other" / "model.safetensors").read_bytes() != (folder / "model.safetensors").read_bytes()
