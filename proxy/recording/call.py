"""The part of a call in progress that does not depend on its capture level, and the answer that a record keeps."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from weir.proxy.conversation.call_request import Answer, ToolCall
from weir.proxy.conversation.caller import Membership
from weir.proxy.sessions.budgets import Allowance
from weir.store.log.intents import NO_SLOT
from weir.store.records.call_record import CallRecord


@dataclass(slots=True, kw_only=True)
class CallInProgress:
    """One call on its way; grows until it is recorded."""

    call_id: str  # of its first answer
    dialect: str
    body: bytes
    user_agent: str | None
    started_us: int
    agent_ids: dict[str, str]
    membership: Membership
    access_key: str | None = None  # the name of the one that the request showed
    allowance: Allowance | None = None  # None: its session has no budget
    request_id: str | None = None  # what the calls of one request share
    first_token_us: int | None = None
    held_us: int = 0
    waiting: bool = False  # for its turn to go upstream, now
    recorded: bool = False
    intent: int = NO_SLOT  # the slot that says that it is upstream, once it was

    @property
    def was_held(self) -> bool:
        """Whether it waited for its turn, now or before."""
        return self.waiting or self.held_us > 0


def answer_of(record: CallRecord) -> Answer:
    """The answer that a record keeps."""
    message = msgspec.json.decode(record.answer) if record.answer else {}
    calls = [(call["id"], call["function"]) for call in message.get("tool_calls") or ()]
    return Answer(
        content=message.get("content") or "",
        reasoning=message.get("reasoning_content"),
        tool_calls=tuple(ToolCall(id=i, name=f["name"], arguments=f["arguments"]) for i, f in calls),
    )
