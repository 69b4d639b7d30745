"""What a model's prompts keep of a conversation, found by rendering probes: tools, calls, results, system prompts.

Templates and renderers drop without a word what their family does not know. Invariant: what is dropped is refused by
its name, before a call is recorded; an agent never talks to a model that was not told of its tools.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from weir.proxy.conversation.call_request import Message, Tool
from weir.proxy.errors import BadRequest
from weir.proxy.rendering.chat_template import PROBE_CALL, PROBE_RESULT, PROBE_TOOL, QUESTION

_SYSTEM: Message = {"role": "system", "content": "probe-weir-system"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What stands in a prompt if it stands in the messages."""

    system: bool = True
    tools: bool = True
    calls: bool = True
    results: bool = True

    @property
    def whole_tools(self) -> bool:
        """Whether tools, their calls and their results are kept."""
        return self.tools and self.calls and self.results


def kept_by(text_of: Callable[[list[Message], list[Tool] | None], str | None]) -> Kept:
    """What is kept by a rendering to text, which gives None for messages that it refuses itself.

    What it refuses it does not drop; a call of a tool without a result may be refused, so results come with it.
    """
    tools = [PROBE_TOOL]
    call = PROBE_CALL["tool_calls"][0]["function"]
    value = call["arguments"].split('"')[3]
    asked = text_of([QUESTION], tools)
    called = text_of([QUESTION, PROBE_CALL, PROBE_RESULT], tools)
    instructed = text_of([_SYSTEM, QUESTION], None)
    return Kept(
        system=instructed is None or _SYSTEM["content"] in instructed,
        tools=asked is None or call["name"] in asked,
        calls=called is None or value in called,
        results=called is None or PROBE_RESULT["content"] in called,
    )


def refuse_dropped(kept: Kept, messages: Sequence[Message], tools: list[Tool] | None) -> None:
    """Raise `BadRequest` for the first thing in a request that would be dropped."""
    if kept == Kept():
        return
    if tools and not kept.tools:
        raise _dropped("tools", "the tools")
    for place, message in enumerate(messages):
        role = message["role"]
        if message.get("tool_calls") and not kept.calls:
            raise _dropped(f"messages[{place}].tool_calls", "calls of tools")
        if role == "tool" and not kept.results:
            raise _dropped(f"messages[{place}]", "results of tools")
        if role in ("system", "developer") and not kept.system:
            raise BadRequest(
                "The model's chat template drops system prompts; put the text into the first user message.",
                param=f"messages[{place}]",
                code="unsupported_parameter",
            )


def _dropped(where: str, what: str) -> BadRequest:
    return BadRequest(
        f"The model's chat template drops {what}: the model would never see them. Leave them out, or set "
        'proxy.tool_prompt = "hermes", which puts tools into the prompt as text.',
        param=where,
        code="unsupported_parameter",
    )
