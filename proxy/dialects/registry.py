"""The wire forms that agents speak, by name."""

from __future__ import annotations

from weir.proxy.conversation.call_request import Dialect
from weir.proxy.dialects.chat_answer import ChatDialect
from weir.proxy.dialects.completions import CompletionsDialect
from weir.proxy.dialects.messages_answer import MessagesDialect
from weir.proxy.dialects.responses_answer import ResponsesDialect

_ALL: tuple[Dialect, ...] = (ChatDialect(), CompletionsDialect(), ResponsesDialect(), MessagesDialect())
DIALECTS: dict[str, Dialect] = {dialect.name: dialect for dialect in _ALL}
