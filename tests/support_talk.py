"""A conversation of an agent with a model that writes as its chat template does, in tokens of its own choice."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from support_families import TOOLS, call_message, spelled_out

from weir.proxy.conversation.call_request import CallRequest, Message
from weir.proxy.conversation.digests import extend
from weir.proxy.conversation.prompt_ids import IdRun
from weir.proxy.rendering.renderer import Rendering
from weir.proxy.stitching.call_cache import CallCache, KnownCall
from weir.proxy.stitching.continuation import Prompt, plan_prompt
from weir.store.records.call_record import Stitch, unpack_ids

SYSTEM: Message = {"role": "system", "content": "Be brief."}
THINKS = ("qwen3", "glm", "deepseek")  # the forms whose models think


class Talk:
    """An agent and a model that writes as its template does, in tokens of its own choice."""

    def __init__(self, rendering: Rendering, *, tools: bool, system: bool, sends_thoughts: bool = True) -> None:
        self.rendering = rendering
        self.tools = TOOLS if tools else None
        self.memory = CallCache(2**24)
        self.messages: list[Message] = [SYSTEM] if system else []
        self.exact: list[int] = []
        self.stitches: list[Stitch] = []
        self._sends_thoughts = sends_thoughts

    def turn(self, new: list[Message], reply: Message, *, thought: str = "", cut: int = 0, end: str = "") -> Prompt:
        """One call; asserts that a bridged prompt begins with the exact ids, whatever they are."""
        self.messages += new
        request = CallRequest(model="weir", messages=self.messages, tools=self.tools)
        prompt = plan_prompt(self.rendering, self.memory, request, "s")
        ids: list[int] = unpack_ids(prompt.ids.packed).tolist()
        self.stitches.append(prompt.stitch)
        if prompt.stitch is Stitch.BRIDGED:
            assert ids[: len(self.exact)] == self.exact and len(ids) > len(self.exact)
        else:
            assert ids == self.rendering.render(self.messages, self.tools)
        output = self._output(ids, reply, thought, end)
        output = output[: len(output) - cut]
        self._remember(prompt, output, reply, thought, is_cut=bool(cut))
        self.exact = ids + output
        return prompt

    def text(self) -> str:
        """All ids so far, as text."""
        return self.rendering.tokenizer.decode(self.exact)

    def _output(self, prompt: list[int], reply: Message, thought: str, end: str) -> list[int]:
        """The reply as the template writes it, in single characters, closed by an end of turn."""
        renderer = self.rendering.renderer
        before = self.rendering.tokenizer.decode(self.rendering.render([{"role": "user", "content": "Q"}], self.tools))
        whole = self.rendering.tokenizer.decode(
            renderer.render_ids([{"role": "user", "content": "Q"}, reply], tools=self.tools)
        )
        before = before.rstrip().removesuffix("<think>")  # some prompts open the thoughts of an answer
        assert whole.startswith(before)
        text = whole[len(before) :].lstrip()
        if text.startswith("<think>"):
            text = text.partition("</think>")[2].lstrip()
        said = self.rendering.tokenizer.encode(text)
        stop = next((i for i, number in enumerate(said) if number in self.rendering.stop_ids), len(said))
        closing = self.rendering.tokenizer.encode(end) if end else said[stop : stop + 1] or self._ending(reply)
        opening = f"<think>\n{thought}\n</think>\n\n" if thought else ""
        text = opening + self.rendering.tokenizer.decode(said[:stop])
        return [*spelled_out(self.rendering, self.rendering.tokenizer.encode(text)), *closing]

    def _ending(self, reply: Message) -> list[int]:
        """Where no token of the template ends an answer, the model begins the turn that comes next."""
        return self.rendering.tokenizer.encode("<|observation|>" if reply.get("tool_calls") else "<|user|>")

    def _remember(self, prompt: Prompt, output: list[int], reply: Message, thought: str, *, is_cut: bool) -> None:
        told: Any = reply
        if is_cut:
            told = self.rendering.parse(output, prompt.ids.tail, self.tools, self.tools is not None, "c").message()
        elif thought and self._sends_thoughts:
            told = {**reply, "reasoning_content": thought}
        call = KnownCall(
            call_id=f"call_{len(self.stitches)}",
            session_id="s",
            group_id="g",
            digest=extend(prompt.digests[-1], told),
            num_messages=len(self.messages),
            asked=prompt.ids.run,
            said=IdRun.of(output, prompt.ids.run),
        )
        self.memory.remember(call, prompt.digests)
        self.messages.append(told)


def said(content: str) -> Message:
    return {"role": "assistant", "content": content}


def asked(content: str) -> list[Message]:
    return [{"role": "user", "content": content}]


def result(of: Message) -> list[Message]:
    return [
        {"role": "tool", "tool_call_id": call["id"], "name": call["function"]["name"], "content": "3"}
        for call in of["tool_calls"]
    ]


def ten_turns(talk: Talk, *, thinks: bool) -> Iterator[Prompt]:
    """Questions, calls one after the other, answers with and without thoughts."""
    thoughts = iter([f"Thought {number}." if thinks else "" for number in range(10)])
    first, second, third = (call_message({"a": number, "note": "x  y"}) for number in range(3))
    for new, reply in (
        (asked("What is it?"), said("It is three.")),
        (asked("Add, please."), first),
        (result(first), second),
        (result(second), said("Well.")),
        (asked("Grüße, 世界 🌍\n"), said("  Thanks: <b>1 < 2</b> ")),
        (asked("And?"), third),
        (result(third), said("Three.")),
        (asked("And one and two?"), said("")),
        (asked("What?"), said("Nothing.")),
        (asked("Thanks."), said("You too.")),
    ):
        yield talk.turn(new, reply, thought=next(thoughts))
