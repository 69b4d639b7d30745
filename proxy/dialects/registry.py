"""The wire forms that agents speak, by name and by route."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from weir.proxy.conversation.call_request import Dialect
from weir.proxy.dialects import body, messages_request, responses_request
from weir.proxy.dialects.chat_answer import ChatDialect
from weir.proxy.dialects.completions import CompletionsDialect
from weir.proxy.dialects.messages_answer import MessagesDialect
from weir.proxy.dialects.responses_answer import ResponsesDialect
from weir.proxy.errors import BadRequest

_ALL: tuple[Dialect, ...] = (ChatDialect(), CompletionsDialect(), ResponsesDialect(), MessagesDialect())
DIALECTS: dict[str, Dialect] = {dialect.name: dialect for dialect in _ALL}
ROUTES: dict[str, Dialect] = {
    "/v1/chat/completions": DIALECTS["chat"],
    "/v1/completions": DIALECTS["completions"],
    "/v1/responses": DIALECTS["responses"],
    "/v1/messages": DIALECTS["messages"],
}


def speaks_anthropic(route: str, headers: Mapping[str, str]) -> bool:
    """Whether the client of a request is one of Anthropic's."""
    return route.startswith("/v1/messages") or "anthropic-version" in headers


def error_dialect(route: str, headers: Mapping[str, str]) -> Dialect:
    """The dialect in which a request's errors are expressed, on routes that serve no calls too."""
    return ROUTES.get(route) or DIALECTS["messages" if speaks_anthropic(route, headers) else "chat"]


def session_in_body(dialect: Dialect, sent: bytes | None, headers: Mapping[str, str]) -> str | None:
    """The session that a body names, as far as it can be read, also where the request is refused."""
    try:
        fields = msgspec.json.decode(sent or b"")
        if not isinstance(fields, dict):
            return None
        if dialect.name == "messages":
            return messages_request.session_hint(fields, headers)
        if dialect.name == "responses":
            return responses_request.session_hint(fields, headers)
        return body.session_hint(fields)
    except (msgspec.DecodeError, RecursionError, BadRequest):
        return None
