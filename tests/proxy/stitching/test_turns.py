"""Conversations: every later turn's prompt starts with the exact ids of the turn before, or has the reason why not."""

import itertools
import json
from collections.abc import Callable
from typing import Any

import pytest
from support_scripted_engine import Script
from support_way import END, Way, ids_of, text_of

from weir.store.records.call_record import CallRecord, FinishReason, Stitch, unpack_ids

TOOLS: Any = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {}}}}]
TOOL_CALL = '<tool_call>\n{"name": "add", "arguments": {"b": 2, "a": 1}}\n</tool_call>'


def ask(way: Way, messages: list[Any], **options: Any) -> Any:
    """One call; returns the assistant message as an agent would send it back."""
    answer = way.proxy.client(options.pop("path", "/v1")).chat.completions.create(
        model="weir", messages=messages, **options
    )
    return answer.choices[0].message.model_dump(exclude_none=True)


def ids_through(record: CallRecord) -> list[int]:
    return unpack_ids(record.prompt_ids).tolist() + unpack_ids(record.output_ids).tolist()


def assert_exact_turns(records: list[CallRecord]) -> None:
    for earlier, later in itertools.pairwise(records):
        exact = ids_through(earlier)
        assert unpack_ids(later.prompt_ids).tolist()[: len(exact)] == exact
        assert (later.stitch, later.stitch_call) == (Stitch.BRIDGED, earlier.call_id)
        assert later.session_id == earlier.session_id
        assert later.group_id == earlier.group_id


def test_three_turns_are_exact_prefixes_of_each_other(way: Way) -> None:
    way.say("One.", "Two.", "Three.")
    messages: list[Any] = [{"role": "system", "content": "Be brief."}]
    for number in range(3):
        messages.append({"role": "user", "content": f"Turn {number}"})
        messages.append(ask(way, messages))
    records = way.proxy.records()
    assert len(records) == 3
    assert_exact_turns(records)
    assert text_of(unpack_ids(records[2].prompt_ids).tolist()) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n"
        "<|im_start|>user\nTurn 0<|im_end|>\n<|im_start|>assistant\nOne.<|im_end|>\n"
        "<|im_start|>user\nTurn 1<|im_end|>\n<|im_start|>assistant\nTwo.<|im_end|>\n"
        "<|im_start|>user\nTurn 2<|im_end|>\n<|im_start|>assistant\n"
    )


def test_ids_that_no_tokenizer_would_give_for_the_text_are_carried_on(way: Way) -> None:
    odd = [token for letter in "Hello there" for token in ids_of(letter)[:-1]] + ids_of("")
    assert odd != ids_of("Hello there")
    way.say(Script(ids=odd), "Yes.")
    messages: list[Any] = [{"role": "user", "content": "Hi"}]
    messages += [ask(way, messages), {"role": "user", "content": "Sure?"}]
    ask(way, messages)
    assert_exact_turns(way.proxy.records())


@pytest.mark.parametrize("keeps_reasoning", [True, False])
def test_reasoning_stays_in_the_prompt_even_if_the_agent_drops_it(way: Way, keeps_reasoning: bool) -> None:
    way.say("<think>\nHm.\n</think>\n\nOne.", "<think>\nHm hm.\n</think>\n\nTwo.", "Three.")
    messages: list[Any] = []
    for number in range(3):
        messages.append({"role": "user", "content": f"Turn {number}"})
        answer = ask(way, messages)
        if not keeps_reasoning:
            answer.pop("reasoning_content", None)
        messages.append(answer)
    assert_exact_turns(way.proxy.records())


def test_tool_turns_are_exact_even_if_the_agent_rewrites_arguments_and_ids(way: Way) -> None:
    way.say("I add.\n" + TOOL_CALL + "\n" + TOOL_CALL, TOOL_CALL, "It is 3.")
    messages: list[Any] = [{"role": "user", "content": "Add 1 and 2"}]
    for _ in range(2):
        answer = ask(way, messages, tools=TOOLS)
        for number, call in enumerate(answer["tool_calls"]):
            call["id"] = f"rewritten-{number}"
            call["function"]["arguments"] = json.dumps({"a": 1, "b": 2}, indent=2)
        messages.append(answer)
        messages += [{"role": "tool", "tool_call_id": call["id"], "content": "3"} for call in answer["tool_calls"]]
    assert ask(way, messages, tools=TOOLS)["content"] == "It is 3."
    assert_exact_turns(way.proxy.records())


@pytest.mark.parametrize("text", ["Hello there, you.", "<think>\nLong thoughts about this"])
def test_an_answer_cut_by_max_tokens_is_carried_on_exactly(way: Way, text: str) -> None:
    way.say(text, "Done.")
    messages: list[Any] = [{"role": "user", "content": "Hi"}]
    messages += [ask(way, messages, max_tokens=6), {"role": "user", "content": "Go on"}]
    ask(way, messages)
    first, second = way.proxy.records()
    assert first.finish is FinishReason.LENGTH
    assert_exact_turns([first, second])


@pytest.mark.parametrize(
    "text",
    [
        "<think>never closed",
        "<think>opened <think>twice<|endoftext|>",
        "two turns<|im_end|>in one<|im_end|>",
        "a broken <tool_call>",
    ],
)
def test_a_malformed_turn_is_carried_on_as_the_model_said_it(way: Way, text: str) -> None:
    way.say(text, "Done.")
    messages: list[Any] = [{"role": "user", "content": "Hi"}]
    messages += [ask(way, messages, tools=TOOLS), {"role": "user", "content": "Go on"}]
    ask(way, messages, tools=TOOLS)
    first, second = way.proxy.records()
    assert_exact_turns([first, second])
    added = unpack_ids(second.prompt_ids).tolist()[len(ids_through(first)) :]
    assert text_of(added) == "\n<|im_start|>user\nGo on<|im_end|>\n<|im_start|>assistant\n"


def test_bytes_that_are_no_text_are_streamed_as_the_finished_answer_has_them(way: Way) -> None:
    snowman = ids_of("☃")[:-1]
    assert len(snowman) > 1
    broken = [*ids_of("Hi ")[:-1], snowman[0], *ids_of("there")[:-1], snowman[0], snowman[0], *snowman, *ids_of("")]
    way.say(Script(ids=broken), "Done.")
    messages: list[Any] = [{"role": "user", "content": "Hi"}]
    stream: Any = way.proxy.client().chat.completions.create(model="weir", messages=messages, stream=True)
    content = "".join(chunk.choices[0].delta.content or "" for chunk in stream)
    assert content == text_of(broken[:-1])
    ask(way, [*messages, {"role": "assistant", "content": content}, {"role": "user", "content": "And?"}])
    assert_exact_turns(way.proxy.records())


def test_an_answer_that_is_asked_for_again_is_a_sibling_with_the_same_prompt(way: Way) -> None:
    way.say("One.", "Two.", "Another two.", "Three.")
    messages: list[Any] = [{"role": "user", "content": "Hi"}]
    messages += [ask(way, messages), {"role": "user", "content": "And?"}]
    ask(way, messages)
    again = ask(way, messages)
    ask(way, [*messages, again, {"role": "user", "content": "Then?"}])
    first, second, third, fourth = way.proxy.records()
    assert second.prompt_ids == third.prompt_ids
    assert (second.stitch_call, third.stitch_call, fourth.stitch_call) == (first.call_id, first.call_id, third.call_id)
    assert_exact_turns([first, third, fourth])


def test_the_same_text_in_two_sessions_is_continued_from_the_ids_of_its_own_session(way: Way) -> None:
    odd = [token for letter in "Hello" for token in ids_of(letter)[:-1]] + ids_of("")
    way.say(Script(ids=odd), "Hello", "A.", "B.")
    messages: list[Any] = [{"role": "user", "content": "Hi"}]
    answers = [ask(way, messages, path=f"/s/{name}/v1") for name in ("a", "b")]
    assert answers[0] == answers[1]
    messages += [answers[0], {"role": "user", "content": "And?"}]
    for name in ("a", "b"):
        ask(way, messages, path=f"/s/{name}/v1")
    first_a, first_b, second_a, second_b = way.proxy.records()
    assert first_a.output_ids != first_b.output_ids
    assert_exact_turns([first_a, second_a])
    assert_exact_turns([first_b, second_b])


def test_a_rewritten_answer_is_rendered_in_full_and_says_where_it_differs(way: Way) -> None:
    way.say("One.", "Two.")
    messages: list[Any] = [{"role": "user", "content": "Hi"}]
    ask(way, messages)
    ask(way, [*messages, {"role": "assistant", "content": "Uno."}, {"role": "user", "content": "And?"}])
    first, second = way.proxy.records()
    assert (second.stitch, second.stitch_call) == (Stitch.HISTORY_REWRITTEN, first.call_id)
    assert second.stitch_differs_at == len(first.prompt_ids) // 4
    assert second.session_id != first.session_id, "it extends no known call, and other sessions share its first message"


EXAMPLES: Any = [
    {"role": "system", "content": "Translate."},
    {"role": "user", "content": "one"},
    {"role": "assistant", "content": "uno"},
    {"role": "user", "content": "two"},
    {"role": "assistant", "content": "dos"},
]


@pytest.mark.parametrize("path", ["/v1", "/s/mine/v1"])
@pytest.mark.parametrize("other", [EXAMPLES, [*EXAMPLES[:3], *EXAMPLES[1:3]], EXAMPLES[:3], EXAMPLES[:1]])
def test_a_conversation_that_begins_with_examples_rewrites_nothing(way: Way, other: list[Any], path: str) -> None:
    way.say("tres", "cuatro", "cinco")
    messages = [*EXAMPLES, {"role": "user", "content": "three"}]
    messages += [ask(way, messages, path=path), {"role": "user", "content": "four"}]
    ask(way, [*other, {"role": "user", "content": "five"}], path=path)
    ask(way, messages, path=path)
    assert [record.stitch for record in way.proxy.records()] == ["new_root", "new_root", "bridged"]


@pytest.mark.parametrize("path", ["/v1", "/s/mine/v1"])
def test_an_answer_that_is_rewritten_behind_examples_is_compared_with_its_call(way: Way, path: str) -> None:
    way.say("tres", "cuatro")
    messages = [*EXAMPLES, {"role": "user", "content": "three"}]
    ask(way, messages, path=path)
    ask(way, [*messages, {"role": "assistant", "content": "3"}, {"role": "user", "content": "four"}], path=path)
    first, second = way.proxy.records()
    assert (second.stitch, second.stitch_call) == (Stitch.HISTORY_REWRITTEN, first.call_id)
    assert second.stitch_differs_at == len(first.prompt_ids) // 4


def test_a_question_that_changes_once_it_is_answered_is_rewritten(way: Way) -> None:
    way.say("Paris.", "Rome.")
    system = {"role": "system", "content": "Be brief."}
    answer = ask(way, [system, {"role": "user", "content": "(monday) France?"}], path="/s/mine/v1")
    moved = [system, {"role": "user", "content": "France?"}, answer, {"role": "user", "content": "(monday) Italy?"}]
    ask(way, moved, path="/s/mine/v1")
    first, second = way.proxy.records()
    assert (second.stitch, second.stitch_call) == (Stitch.HISTORY_REWRITTEN, first.call_id)


@pytest.mark.parametrize("change", ["system", "tools"])
def test_another_system_prompt_or_other_tools_are_a_new_root(way: Way, change: str) -> None:
    way.say("One.", "Two.")
    messages: list[Any] = [{"role": "system", "content": "A"}, {"role": "user", "content": "Hi"}]
    messages += [ask(way, messages), {"role": "user", "content": "And?"}]
    if change == "system":
        messages[0] = {"role": "system", "content": "B"}
    ask(way, messages, **({"tools": TOOLS} if change == "tools" else {}))
    first, second = way.proxy.records()
    assert (second.stitch, second.stitch_call) == (Stitch.NEW_ROOT, None)
    assert second.session_id != first.session_id


def test_an_empty_answer_that_the_agent_leaves_out_is_still_gone_on_from(way: Way) -> None:
    way.say("<think>\nOnly thoughts", "Two.")
    messages: list[Any] = [{"role": "user", "content": "Hi"}]
    assert not ask(way, messages).get("content")
    ask(way, [*messages, {"role": "user", "content": "And?"}])
    assert_exact_turns(way.proxy.records())


def test_an_empty_answer_that_is_asked_for_again_is_a_new_root(way: Way) -> None:
    way.say("", "Two.")
    for _ in range(2):
        ask(way, [{"role": "user", "content": "Hi"}])
    first, second = way.proxy.records()
    assert (second.stitch, second.prompt_ids) == (Stitch.NEW_ROOT, first.prompt_ids)


@pytest.mark.parametrize("with_answer", [False, True])
def test_a_history_that_the_agent_makes_shorter_is_compacted(way: Way, with_answer: bool) -> None:
    way.say("One.", "Two.", "Three.")
    messages: list[Any] = [{"role": "system", "content": "Be brief."}]
    for turn in range(2):
        messages.append({"role": "user", "content": f"Turn {turn}"})
        messages.append(ask(way, messages, path="/s/mine/v1"))
    kept = [messages[0], {"role": "user", "content": "So far: one, two."}]
    kept += [{"role": "assistant", "content": "I see."}] if with_answer else []
    ask(way, [*kept, {"role": "user", "content": "Go on"}] if with_answer else kept, path="/s/mine/v1")
    _, second, third = way.proxy.records()
    reason = Stitch.HISTORY_REWRITTEN if with_answer else Stitch.COMPACTED
    assert (third.stitch, third.session_id) == (reason, "mine"), "with the answer it is as long as what it replaces"
    same = text_of(unpack_ids(third.prompt_ids).tolist()[: third.stitch_differs_at])
    assert same.startswith("<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n")
    assert third.stitch_call == second.call_id


def test_a_sub_agent_and_a_fresh_start_in_the_same_session_are_new_roots(way: Way) -> None:
    way.say("One.", "Two.", "Three.", "Four.")
    messages: list[Any] = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    first = ask(way, messages, path="/s/mine/v1")
    ask(way, [*messages, first, {"role": "user", "content": "And?"}], path="/s/mine/v1")
    ask(way, [{"role": "system", "content": "You search."}, messages[1]], path="/s/mine/v1")
    ask(way, messages, path="/s/mine/v1")
    assert [record.stitch for record in way.proxy.records()] == ["new_root", "bridged", "new_root", "new_root"]


def test_a_template_that_drops_old_reasoning_is_named_as_the_cause(open_way: Callable[..., Way]) -> None:
    way = open_way(keep_reasoning=False)
    way.say("<think>\nHm.\n</think>\n\nOne.", "Two.")
    messages: list[Any] = [{"role": "user", "content": "Hi"}]
    messages += [ask(way, messages), {"role": "user", "content": "And?"}]
    ask(way, messages)
    first, second = way.proxy.records()
    assert (second.stitch, second.stitch_call) == (Stitch.TEMPLATE_STRIP, first.call_id)
    assert second.stitch_differs_at == len(first.prompt_ids) // 4


def test_without_a_renderer_of_its_own_a_model_keeps_turns_exact_by_its_chat_template(
    open_way: Callable[..., Way],
) -> None:
    way = open_way(renderer="default")
    odd = [token for letter in "Hello there" for token in ids_of(letter)[:-1]] + ids_of("")
    way.say("One.", Script(ids=odd), "Three.")
    messages: list[Any] = []
    for number in range(3):
        messages.append({"role": "user", "content": f"Turn {number}"})
        messages.append(ask(way, messages))
    first, second, third = way.proxy.records()
    assert (second.stitch, second.stitch_call) == (Stitch.BRIDGED, first.call_id)
    assert (third.stitch, third.stitch_call) == (Stitch.BRIDGED, second.call_id)
    prompt = unpack_ids(third.prompt_ids).tolist()
    assert prompt[: len(ids_through(second))] == ids_through(second) and len(odd) == len(second.output_ids) // 4
    new = prompt[len(ids_through(second)) :]
    whole = way.proxy.proxy.rendering.render([*messages[:-2], messages[-2]], None)  # type: ignore[union-attr]
    assert whole[-len(new) :] == new, "what follows the answer is what the template writes there"


def test_end_of_turn_is_the_last_output_token() -> None:
    assert text_of(ids_of("x")[-1:]) == END
