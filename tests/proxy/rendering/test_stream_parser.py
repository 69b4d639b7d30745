"""A stream always shows a prefix of the finished answer, and in the end all of it, for every family."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support_families import FAMILIES, TOKENS, TOOLS, WITHOUT_THOUGHT, call_message, rendering_of, said, spelled_out
from support_templates import FORMS, template_rendering
from support_way import END

from weir.proxy.config import ProxyConfig
from weir.proxy.conversation.call_request import Delta, Message, Tool
from weir.proxy.rendering.opening import open_rendering
from weir.proxy.rendering.renderer import Rendering
from weir.proxy.rendering.stream_parser import StreamedText, cut_at_stop

USER: list[Message] = [{"role": "user", "content": "Hi"}]


@pytest.fixture(scope="module", params=["qwen3", "default"])
def rendering(request: pytest.FixtureRequest, tiny_model_dir: Path) -> Rendering:
    return open_rendering(tiny_model_dir, "weir", ProxyConfig(renderer=request.param))


def streamed(
    rendering: Rendering,
    ids: list[int],
    step: int,
    stops: tuple[str, ...] = (),
    *,
    tools: list[Tool] | None = TOOLS,
    prompt: list[int] | None = None,
) -> list[Delta]:
    """Every delta; asserts that together they are the finished answer."""
    prompt = rendering.render(USER, tools) if prompt is None else prompt
    text = StreamedText(rendering.reading(prompt, tools, tools is not None, "call_x"), stops)
    shown: list[Delta] = []
    taken = 0
    while taken < len(ids) and not text.stopped:
        shown.append(text.feed(ids[taken : taken + step]))
        taken += step
    answer, _ = cut_at_stop(rendering.parse(ids[:taken], prompt, tools, tools is not None, "call_x"), stops)
    shown.append(text.rest(answer))
    assert "".join(delta.content for delta in shown) == answer.content
    assert "".join(delta.reasoning for delta in shown) == (answer.reasoning or "")
    assert tuple(call for delta in shown for call in delta.tool_calls) == answer.tool_calls
    return shown


@pytest.mark.parametrize("step", [1, 3, 1000])
@pytest.mark.parametrize(
    "text",
    [
        "Hello there.",
        "  spaces before and after  \n\n",
        "wörld ☃ 漢字 at token borders",
        "<think>\nFirst this.\n</think>\n\nThen that.",
        "\n\n<think>only reasoning, cut off",
        "<think></think>empty",
        "plain </think> marker",
        'I call.\n<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>',
        "<think>a<tool_call>b</tool_call>c</think>d",
        '<think>a<tool_call>\n{"name": "add", "arguments": {}}\n</tool_call>c</think>d',
        '<think>a<tool_call>\n{"name": "add", "arguments": {}}\n</tool_call>',
        "<tool_call>\nnot json\n</tool_call>",
        "text <think>late</think> more",
        "",
    ],
)
def test_what_was_shown_is_what_the_answer_says(rendering: Rendering, text: str, step: int) -> None:
    for tools in (TOOLS, None):
        streamed(rendering, rendering.tokenizer.encode(text + END), step, tools=tools)


@pytest.mark.parametrize("name", FAMILIES)
def test_text_and_reasoning_come_before_the_answer_is_finished(name: str) -> None:
    rendering = rendering_of(name)
    thought, content = "First this, then the other thing.", "Then that, and more of it, until the end."
    answer: Message = {"role": "assistant", "content": content, "reasoning_content": thought}
    shown = streamed(rendering, said(rendering, USER, TOOLS, answer), 1)[:-1]
    assert len([delta for delta in shown if delta.content]) > 5
    assert content.startswith("".join(delta.content for delta in shown).strip()[:-1])
    if name not in WITHOUT_THOUGHT:
        assert len([delta for delta in shown if delta.reasoning]) > 5


@pytest.mark.parametrize("name", [name for name in FAMILIES if name != "llama-3"])
def test_a_tool_call_comes_as_soon_as_it_is_closed(name: str) -> None:
    rendering = rendering_of(name)
    ids = said(
        rendering, USER, TOOLS, call_message({"a": 1, "note": "x y"}, content="I call.", reasoning_content="Hm.")
    )
    deltas = streamed(rendering, ids, 1)
    (arrived,) = [i for i, delta in enumerate(deltas) if delta.tool_calls]
    assert arrived < len(ids)


@pytest.mark.parametrize("step", [1, 2, 1000])
def test_a_stop_string_is_never_shown_even_in_parts(rendering: Rendering, step: int) -> None:
    ids = rendering.tokenizer.encode("one two three four")
    deltas = streamed(rendering, ids, step, ("three", "never"))
    assert "".join(delta.content for delta in deltas) == "one two "


@pytest.mark.parametrize("step", [1, 4, 1000])
@pytest.mark.parametrize("rest", ["<tool_call>stop", "and then stop"])
def test_a_call_before_a_stop_string_stays(step: int, rest: str) -> None:
    rendering = rendering_of("qwen3")
    ids = rendering.tokenizer.encode('<tool_call>\n{"name": "add", "arguments": {}}\n</tool_call>' + rest)
    deltas = streamed(rendering, ids, step, ("stop",))
    assert [call.name for delta in deltas for call in delta.tool_calls] == ["add"]


PLAIN = ["\n", " ", "a b", "é☃", '{"name": "add"}', "stop", "<think>", "</think>", "<", "</thi", "nk>", "add"]
# With these in the middle, the library's parser forgets what came before them.
FORGETS = ("<|end_header_id|>", "<|content_thinking|>")
# Reasoning may open again after content here, and a stop string in it would take the content along.
REOPENS = ("glm-4.5", "glm-5", "deepseek-v4")


def answers(name: str) -> st.SearchStrategy[list[str]]:
    """Any mixture of a family's tokens and texts."""
    tokens = [token for token in TOKENS[name] if token not in FORGETS]
    return st.lists(st.sampled_from([*PLAIN, *tokens]), max_size=12)


@pytest.mark.parametrize("name", FAMILIES)
@settings(max_examples=100, deadline=None, derandomize=True)
@given(data=st.data(), step=st.integers(1, 5), with_stop=st.booleans(), with_tools=st.booleans())
def test_any_mixture_of_tokens_streams_to_the_finished_answer(
    name: str, data: Any, step: int, with_stop: bool, with_tools: bool
) -> None:
    rendering = rendering_of(name)
    ids = rendering.tokenizer.encode("".join(data.draw(answers(name))))
    streamed(
        rendering,
        ids,
        step,
        ("stop",) if with_stop and name not in REOPENS else (),
        tools=TOOLS if with_tools else None,
    )


@pytest.mark.parametrize("name", FAMILIES)
@settings(max_examples=30, deadline=None, derandomize=True)
@given(data=st.data(), step=st.integers(1, 7))
def test_a_well_formed_answer_streams_to_the_finished_one_wherever_it_ends(name: str, data: Any, step: int) -> None:
    rendering = rendering_of(name)
    text = st.text("ab é☃\n{<", max_size=20)
    content, thought, note = data.draw(text), data.draw(text), data.draw(text)
    answer = call_message({"a": 1, "note": note}, content=content, reasoning_content=thought)
    ids = spelled_out(rendering, said(rendering, USER, TOOLS, answer))
    streamed(rendering, ids[: data.draw(st.integers(0, len(ids)))], step)


@pytest.mark.parametrize("step", [1, 4, 1000])
@pytest.mark.parametrize(
    ("text", "num_calls"),
    [
        ("Just text.", 0),
        ('  I add. \n<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>', 1),
        ('<tool_call>{"name": "add"}</tool_call>\n<tool_call>{"name": "add"}</tool_call>\nDone.', 2),
        ('I add.\n<tool_call>{"name": "add", "argu', 0),
        ("<tool_call>no JSON</tool_call> and <tool_", 0),
        ('One.<tool_call>[1]</tool_call>Two.<tool_call>{"name": "add"}</tool_call>Three.', 1),
    ],
)
def test_calls_that_are_plain_text_stream_as_they_are_finished(
    tmp_path: Path, text: str, num_calls: int, step: int
) -> None:
    rendering = template_rendering(tmp_path / "m", FORMS["smollm2"], tool_prompt="hermes")
    assert rendering.tokenizer.backend.token_to_id("<tool_call>") is None
    ids = [number for character in text for number in rendering.tokenizer.encode(character)]
    shown = streamed(rendering, [*ids, rendering.stop_ids[0]], step)
    assert len([call for delta in shown for call in delta.tool_calls]) == num_calls
