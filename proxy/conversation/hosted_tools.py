"""Tools that a host runs itself, such as a web search: refused, or left out of prompts where a setting says so."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from weir.proxy.conversation.call_request import CallRequest
from weir.proxy.errors import BadRequest


def without_hosted_tools(request: CallRequest, dropped: Sequence[str]) -> CallRequest:
    """The request without those of its host's tools whose types are `dropped`, which it then names as ignored.

    A type stands for its dated and preview forms too: `web_search` for `web_search_20250305`. Raises `BadRequest` for a
    tool of another type.
    """
    for tool in request.hosted_tools:
        if not any(tool.type == name or tool.type.startswith(f"{name}_") for name in dropped):
            raise BadRequest(
                f"{tool.where}: the host would have to run the built-in tool {tool.type!r:.80}, which is not supported "
                "here; functions and custom tools are. proxy.drop_builtin_tools leaves tools of a type out of prompts.",
                param=tool.where,
                code="unsupported_parameter",
            )
    if not request.hosted_tools:
        return request
    return msgspec.structs.replace(
        request, ignored_fields=request.ignored_fields + tuple(tool.where for tool in request.hosted_tools)
    )
