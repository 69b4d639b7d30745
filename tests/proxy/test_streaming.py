"""What a stream shows is always a prefix of the finished answer, and in the end all of it."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support_model import make_tokenizer
from support_way import END

from weir.proxy.config import ProxyConfig
from weir.proxy.dialect import Delta
from weir.proxy.rendering import Rendering, open_rendering
from weir.proxy.streaming import StreamedText, cut_at_stop

Render = Callable[[str], Rendering]
PROMPT: list[int] = make_tokenizer(512).encode("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")


@pytest.fixture(scope="module", params=["qwen3", "default"])
def rendering(request: pytest.FixtureRequest, tiny_model_dir: Path) -> Rendering:
    return open_rendering(tiny_model_dir, "weir", ProxyConfig(renderer=request.param))


def streamed(rendering: Rendering, ids: list[int], step: int, stops: tuple[str, ...]) -> tuple[str, str, str, str]:
    """Content and reasoning as they were shown, and as the finished answer says them."""
    text = StreamedText(rendering.tokenizer.backend, rendering.markers(PROMPT), stops)
    shown: list[Delta] = []
    taken = 0
    while taken < len(ids) and not text.stopped:
        shown.append(text.feed(ids[taken : taken + step]))
        taken += step
    answer, _ = cut_at_stop(rendering.parse(ids[:taken], PROMPT, None, True), stops)
    final = answer.content, answer.reasoning or ""
    assert final[0].startswith("".join(part.content for part in shown))
    assert final[1].startswith("".join(part.reasoning for part in shown))
    shown.append(text.rest(answer))
    return "".join(part.content for part in shown), "".join(part.reasoning for part in shown), *final


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
        "<tool_call>\nnot json\n</tool_call>",
        "text <think>late</think> more",
        "",
    ],
)
def test_what_was_shown_is_what_the_answer_says(rendering: Rendering, text: str, step: int) -> None:
    ids = rendering.tokenizer.encode(text + END)
    content, reasoning, final_content, final_reasoning = streamed(rendering, ids, step, ())
    assert (content, reasoning) == (final_content, final_reasoning)


def test_text_comes_before_the_answer_is_finished(rendering: Rendering) -> None:
    ids = rendering.tokenizer.encode("<think>\nFirst this.\n</think>\n\nThen that")
    text = StreamedText(rendering.tokenizer.backend, rendering.markers(PROMPT), ())
    shown = [text.feed([number]) for number in ids]
    assert "".join(part.content for part in shown).strip() == "Then that"
    assert "".join(part.reasoning for part in shown) == "First this."


@pytest.mark.parametrize("step", [1, 2, 1000])
def test_a_stop_string_is_never_shown_even_in_parts(rendering: Rendering, step: int) -> None:
    ids = rendering.tokenizer.encode("one two three four")
    content, _, final, _ = streamed(rendering, ids, step, ("three", "never"))
    assert content == final == "one two "


@settings(max_examples=150, deadline=None)
@given(
    parts=st.lists(
        st.sampled_from(
            ["<think>", "</think>", "<tool_call>", "</tool_call>", "\n", " ", "a b", "é☃", '{"name": "f"}', END, "stop"]
        ),
        max_size=12,
    ),
    step=st.integers(1, 5),
    with_stop=st.booleans(),
)
def test_any_mixture_of_markers_streams_to_the_finished_answer(
    qwen: Rendering, parts: list[str], step: int, with_stop: bool
) -> None:
    ids = qwen.tokenizer.encode("".join(parts))
    content, reasoning, final_content, final_reasoning = streamed(qwen, ids, step, ("stop",) if with_stop else ())
    assert (content, reasoning) == (final_content, final_reasoning)


@pytest.fixture(scope="module")
def qwen(tiny_model_dir: Path) -> Rendering:
    return open_rendering(tiny_model_dir, "weir", ProxyConfig())
