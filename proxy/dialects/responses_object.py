"""The response object of the responses dialect and its output items, as whole answers and events share them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from weir.proxy.conversation.call_request import CallRequest, Finished, TokenLogprob, ToolCall, Usage
from weir.proxy.dialects.body import likeliest
from weir.proxy.dialects.custom_tools import input_in
from weir.proxy.dialects.responses_tools import CUSTOM_CALL
from weir.proxy.errors import CallError

PREFIX = "resp_"
Item = dict[str, Any]


def response_id(call_id: str) -> str:
    """The `id` that the client sees, which names the call."""
    return PREFIX + call_id.removeprefix("call_")


def call_id_of(response: str) -> str:
    """The call that a response's id names."""
    return "call_" + response.removeprefix(PREFIX)


def response_object(
    request: CallRequest,
    call_id: str,
    created_s: int,
    *,
    output: Sequence[Item] = (),
    finished: Finished | None = None,
    error: CallError | None = None,
) -> dict[str, Any]:
    """A response: in progress, or as it `finished`, or failed with `error`."""
    echo = request.echo
    is_cut = finished is not None and finished.reason == "length"
    done = "incomplete" if is_cut else "completed"
    return {
        "id": response_id(call_id),
        "object": "response",
        "created_at": created_s,
        "status": "failed" if error is not None else done if finished is not None else "in_progress",
        "background": False,
        "error": None if error is None else {"code": "server_error", "message": error.message},
        "incomplete_details": {"reason": "max_output_tokens"} if is_cut else None,
        "instructions": echo.get("instructions"),
        "max_output_tokens": echo.get("max_output_tokens"),
        "max_tool_calls": echo.get("max_tool_calls"),
        "metadata": echo.get("metadata", {}),
        "model": request.model,
        "output": list(output),
        "parallel_tool_calls": request.parallel_tool_calls,
        "previous_response_id": echo.get("previous_response_id"),
        "prompt_cache_key": echo.get("prompt_cache_key"),
        "reasoning": {"effort": None, "summary": None} | echo.get("reasoning", {}),
        "safety_identifier": echo.get("safety_identifier"),
        "service_tier": "default",
        "store": echo.get("store", True),
        "temperature": request.sampling.temperature,
        "text": {"format": {"type": "text"}} | echo.get("text", {}),
        "tool_choice": echo.get("tool_choice", "auto"),
        "tools": echo.get("tools", []),
        "top_logprobs": request.top_logprobs,
        "top_p": request.sampling.top_p,
        "truncation": "disabled",
        "usage": None if finished is None else usage_object(finished.usage),
        "user": echo.get("user"),
    }


def reasoning_item(call_id: str, index: int, text: str, *, status: str) -> Item:
    """The model's reasoning, as itself and not as a summary."""
    content = [{"type": "reasoning_text", "text": text}] if text else []
    return {"id": item_id("rs", call_id, index), "type": "reasoning", "summary": [], "content": content} | {
        "encrypted_content": None,
        "status": status,
    }


def message_item(
    call_id: str, index: int, text: str | None, logprobs: Sequence[TokenLogprob] | None, *, status: str
) -> Item:
    """The model's text; None where its part has not begun."""
    content = [] if text is None else [text_part(text, logprobs)]
    return {"id": item_id("msg", call_id, index), "type": "message", "role": "assistant"} | {
        "content": content,
        "status": status,
    }


def call_item(
    call_id: str, index: int, call: ToolCall, arguments: str, named: Mapping[str, Item], *, status: str
) -> Item:
    """The item of a call; `named` are the fields by which it differs from that of a plain function (`call_fields`)."""
    fields = {"type": "function_call", "call_id": call.id, "name": call.name} | named.get(call.name, {})
    is_custom = fields["type"] == CUSTOM_CALL
    said = {"input": input_in(arguments)} if is_custom else {"arguments": arguments}
    return {"id": item_id("ctc" if is_custom else "fc", call_id, index)} | fields | said | {"status": status}


def text_part(text: str, logprobs: Sequence[TokenLogprob] | None) -> dict[str, Any]:
    """The text part of a message."""
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": logprob_list(logprobs)}


def logprob_list(tokens: Sequence[TokenLogprob] | None) -> list[dict[str, Any]]:
    """Tokens with their logprobs."""
    return [
        {"token": one.text, "bytes": list(one.text.encode()), "logprob": one.logprob, "top_logprobs": likeliest(one)}
        for one in tokens or ()
    ]


def usage_object(usage: Usage) -> dict[str, Any]:
    """The token counts of a response."""
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    }


def item_id(prefix: str, call_id: str, index: int) -> str:
    """The id of an item: its kind, its call, its place in the output."""
    return f"{prefix}_{call_id.removeprefix('call_')}_{index}"
