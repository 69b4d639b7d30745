"""Every continued turn of every family starts with the exact ids of the turn before, whatever the answer was."""

import json
from typing import Any

import pytest
from support_families import FAMILIES, TOOLS, WITHOUT_THOUGHT, call_message, rendering_of, said, spelled_out

from weir.proxy.conversation.call_request import Answer, CallRequest, Message, ToolUse
from weir.proxy.conversation.digests import extend
from weir.proxy.conversation.prompt_ids import IdRun
from weir.proxy.errors import BadRequest
from weir.proxy.rendering.families import family_of
from weir.proxy.rendering.forced_output import EngineGrammars, steered
from weir.proxy.rendering.renderer import Rendering
from weir.proxy.stitching.call_cache import CallCache, KnownCall
from weir.proxy.stitching.continuation import Prompt, plan_prompt
from weir.store.records.call_record import Stitch, unpack_ids


class Conversation:
    """An agent that sends back the answers it got, and a model whose tokens are not the tokenizer's own."""

    def __init__(self, name: str, *, drops_reasoning: bool) -> None:
        self.rendering: Rendering = rendering_of(name)
        self.memory = CallCache(2**24)
        self.messages: list[Message] = [{"role": "system", "content": "Be brief."}]
        self.exact: list[int] = []
        self._drops_reasoning = drops_reasoning
        self._num_calls = 0

    def turn(self, new: list[Message], reply: Message | list[int]) -> tuple[Prompt, Answer]:
        """Send the messages `new` and let the model answer."""
        self.messages += new
        prompt = plan_prompt(self.rendering, self.memory, self.request(), None)
        if prompt.stitch is Stitch.BRIDGED and prompt.known is not None:
            earlier, output = (unpack_ids(packed).tolist() for packed in (prompt.known.prompt, prompt.known.output))
            assert prompt.ids.tail == self.rendering.extension(earlier, output, new, TOOLS)  # all of it says no more
        output = reply if isinstance(reply, list) else self.output(reply)
        self._num_calls += 1
        call_id = f"call_{self._num_calls}"
        answer = self.rendering.parse(output, prompt.ids.tail, TOOLS, True, call_id)
        known = KnownCall(
            call_id=call_id,
            session_id="s",
            group_id="g",
            digest=extend(prompt.digests[-1], answer.message()),
            num_messages=len(self.messages),
            asked=prompt.ids.run,
            said=IdRun.of(output, prompt.ids.run),
        )
        self.memory.remember(known, prompt.digests)
        told = answer.message()
        if self._drops_reasoning:
            told.pop("reasoning_content", None)
        for call in told.get("tool_calls", ()):
            call["function"]["arguments"] = json.dumps(json.loads(call["function"]["arguments"]), indent=1)
        self.messages.append(told)
        self.exact = ids_of(prompt) + output
        return prompt, answer

    def request(self) -> CallRequest:
        return CallRequest(model="weir", messages=self.messages, tools=TOOLS)

    def output(self, reply: Message) -> list[int]:
        return spelled_out(self.rendering, said(self.rendering, user("Hi"), TOOLS, reply))


def ids_of(prompt: Prompt) -> list[int]:
    """The prompt's ids; asserts that its JSON has the same."""
    ids: list[int] = unpack_ids(prompt.ids.packed).tolist()
    assert json.loads(b"[%b]" % b"".join(prompt.ids.json())) == ids
    return ids


def assistant(content: str, reasoning: str = "Let me think.") -> Message:
    return {"role": "assistant", "content": content, "reasoning_content": reasoning}


def user(content: str) -> list[Message]:
    return [{"role": "user", "content": content}]


@pytest.mark.parametrize("drops_reasoning", [False, True])
@pytest.mark.parametrize("name", FAMILIES)
def test_every_continued_turn_is_exact(name: str, drops_reasoning: bool) -> None:
    talk = Conversation(name, drops_reasoning=drops_reasoning)
    _, first = talk.turn(user("Hi there"), assistant("Hello, what is it?"))
    assert first.content == "Hello, what is it?"
    assert (first.reasoning == "Let me think.") is (name not in WITHOUT_THOUGHT)
    turns: list[tuple[list[Message], Message]] = [
        (user("Add, please."), call_message({"a": 1, "note": "x y"}, reasoning_content="A tool.")),
        ([], call_message({"a": 2, "note": "z"}, reasoning_content="Once more.")),
        ([], assistant("It is 3.")),
        (user("  Thanks \n"), assistant("You are welcome.")),
    ]
    calls: Any = ()
    for new, reply in turns:
        before = talk.exact
        results = [{"role": "tool", "tool_call_id": c.id, "name": c.name, "content": "3"} for c in calls]
        prompt, answer = talk.turn(results + new, reply)
        assert prompt.stitch is Stitch.BRIDGED
        assert ids_of(prompt)[: len(before)] == before
        assert len(prompt.ids) > len(before)
        calls = answer.tool_calls
        assert [call.name for call in calls] == ["add"] * len(reply.get("tool_calls", ()))
    assert talk.messages[-1]["content"] == "You are welcome."


@pytest.mark.parametrize("name", FAMILIES)
def test_a_turn_cut_by_length_is_continued_exactly(name: str) -> None:
    talk = Conversation(name, drops_reasoning=True)
    whole = talk.output(assistant("A long answer that is cut somewhere."))
    talk.turn(user("Hi there"), whole[:-5])
    before = talk.exact
    prompt, _ = talk.turn(user("Go on."), assistant("Well."))
    assert (prompt.stitch, ids_of(prompt)[: len(before)]) == (Stitch.BRIDGED, before)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_rewritten_history_says_so_and_where_it_differs(name: str) -> None:
    talk = Conversation(name, drops_reasoning=False)
    talk.turn(user("Hi there"), assistant("Hello."))
    talk.messages[-1] = {"role": "assistant", "content": "Something else."}
    before = talk.exact
    prompt, _ = talk.turn(user("And now?"), assistant("Well."))
    assert prompt.stitch is Stitch.HISTORY_REWRITTEN
    assert prompt.differs_at is not None
    assert ids_of(prompt)[: prompt.differs_at] == before[: prompt.differs_at]
    assert ids_of(prompt)[prompt.differs_at] != before[prompt.differs_at]


@pytest.mark.parametrize("named", ["add", None])
@pytest.mark.parametrize("name", [name for name in FAMILIES if family_of(name).call_opening])
def test_a_forced_call_is_how_the_template_itself_writes_calls(name: str, named: str | None) -> None:
    talk = Conversation(name, drops_reasoning=True)
    talk.messages = user("Add, please.")
    prompt = talk.rendering.render(talk.messages, TOOLS)
    tools = TOOLS if named else [*TOOLS, {"type": "function", "function": {"name": "sub", "parameters": {}}}]
    request = CallRequest(
        model="weir", messages=talk.messages, tools=tools, tool_use=ToolUse.REQUIRED, tool_named=named
    )
    forced = steered(talk.rendering, request, prompt).forced_ids
    opening = (talk.rendering.family.call_opening or "") + ("add" + talk.rendering.family.name_end if named else "")
    written = talk.rendering.tokenizer.decode(talk.output(call_message({"a": 1, "note": "x"})))
    rest = written[written.index(opening) + len(opening) :]
    output = talk.rendering.tokenizer.encode(rest)
    answer = talk.rendering.parse(forced + output, prompt, TOOLS, True, "c")
    assert [(call.name, json.loads(call.arguments)) for call in answer.tool_calls] == [("add", {"a": 1, "note": "x"})]
    results: list[Message] = [{"role": "tool", "tool_call_id": answer.tool_calls[0].id, "name": "add", "content": "3"}]
    assert talk.rendering.extension(prompt, forced + output, results, TOOLS) is not None


def test_of_two_tools_of_one_name_the_schema_of_the_last_is_kept() -> None:
    rendering = rendering_of("qwen3")
    tools: list[Any] = [
        {"type": "function", "function": {"name": "add", "strict": True, "parameters": {"properties": {name: {}}}}}
        for name in ("first", "last")
    ]
    request = CallRequest(model="weir", messages=user("Add."), tools=tools, tool_use=ToolUse.REQUIRED, tool_named="add")
    prompt = rendering.render(request.messages, tools)
    grammar = steered(rendering, request, prompt, EngineGrammars(take_lark=True)).grammar["ebnf"]
    assert '"last"' in grammar and '"first"' not in grammar


@pytest.mark.parametrize("name", [name for name in FAMILIES if family_of(name).call_close])
def test_an_answer_that_ends_with_its_first_call_is_continued_exactly(name: str) -> None:
    talk = Conversation(name, drops_reasoning=True)
    request = CallRequest(model="weir", messages=user("Hi"), tools=TOOLS, parallel_tool_calls=False)
    close = steered(talk.rendering, request, []).stop_ids[-1]
    output = talk.output(call_message({"a": 1, "note": "x"}))
    _, answer = talk.turn(user("Add."), output[: output.index(close) + 1])
    assert [call.name for call in answer.tool_calls] == ["add"]
    before = talk.exact
    prompt, _ = talk.turn(
        [{"role": "tool", "tool_call_id": answer.tool_calls[0].id, "name": "add", "content": "3"}], assistant("Done.")
    )
    assert (prompt.stitch, ids_of(prompt)[: len(before)]) == (Stitch.BRIDGED, before)


@pytest.mark.parametrize("name", [name for name in FAMILIES if not family_of(name).call_opening])
def test_a_family_that_cannot_be_forced_refuses_by_name(name: str) -> None:
    rendering = rendering_of(name)
    request = CallRequest(model="weir", messages=user("Hi"), tools=TOOLS, tool_use=ToolUse.REQUIRED)
    with pytest.raises(BadRequest) as caught:
        steered(rendering, request, rendering.render(request.messages, TOOLS))
    assert caught.value.param == "tool_choice"
