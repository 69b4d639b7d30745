"""The wire forms that agents speak, by name."""

from __future__ import annotations

from weir.proxy.chat import ChatDialect
from weir.proxy.completions import CompletionsDialect
from weir.proxy.dialect import Dialect
from weir.proxy.messages import MessagesDialect
from weir.proxy.responses import ResponsesDialect

_ALL: tuple[Dialect, ...] = (ChatDialect(), CompletionsDialect(), ResponsesDialect(), MessagesDialect())
DIALECTS: dict[str, Dialect] = {dialect.name: dialect for dialect in _ALL}
