"""From a relayed request's bytes to a call: the call that it continues, its session, its budget, its route's form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from weir.proxy.conversation.call_request import Message
from weir.proxy.conversation.caller import Identity
from weir.proxy.conversation.digests import Digest, chain
from weir.proxy.errors import BadRequest
from weir.proxy.relay.call import RelayedCall
from weir.proxy.relay.history import history
from weir.proxy.relay.item_answers import answer_parser
from weir.proxy.relay.levels import Certified, RouteForm
from weir.proxy.relay.wire import count
from weir.proxy.sampling_config import SamplingConfig
from weir.proxy.sessions.budgets import Budgets
from weir.proxy.sessions.session_book import SessionBook
from weir.proxy.stitching.call_cache import CallCache, KnownCall
from weir.proxy.stitching.store_lookup import StoreLookup
from weir.store.records.ids import new_id


class RelayOpening:
    """Opens relayed calls."""

    def __init__(
        self,
        certified: Certified,
        below_level: Literal["refuse", "record"],
        sampling: SamplingConfig,
        *,
        sessions: SessionBook,
        budgets: Budgets,
        memory: CallCache,
        lookup: StoreLookup,
    ) -> None:
        self._certified = certified
        self._below_level = below_level
        self._sampling = sampling
        self._sessions = sessions
        self._budgets = budgets
        self._memory = memory
        self._lookup = lookup

    async def call(
        self,
        dialect: str,
        body: bytes,
        fields: dict[str, Any],
        identity: Identity,
        headers: Mapping[str, str],
        started_us: int,
    ) -> RelayedCall:
        """The call that a body asks for; `fields` are its members. Raises `CallError`."""
        form, num_answers = self._form(dialect), count(fields.get("n")) or 1
        tools, messages = history(dialect, fields)
        digests = chain(tools, messages)
        known = await self._continued(messages, digests, identity.session_id)
        membership = await self._sessions.joined(identity, known, lambda: f"group_{digests[-1].hex()}")
        call_id = new_id("call")
        return RelayedCall(
            call_id=call_id,
            request_id=new_id("request"),
            retry_count=count(headers.get("x-stainless-retry-count")),
            call_ids=[call_id],
            override=self._sampling.override(
                session_id=membership.session_id, group_id=membership.group_id, access_key=identity.access_key
            ),
            dialect=dialect,
            body=body,
            fields=fields,
            promised=self._certified.level,
            form=form,
            digests=digests,
            known=known,
            membership=membership,
            access_key=identity.access_key,
            allowance=await self._budgets.begin(membership, num_calls=num_answers),
            agent_ids=identity.agent_ids,
            user_agent=headers.get("user-agent"),
            started_us=started_us,
            answer=answer_parser(dialect, form.strip(fields, streamed=fields.get("stream") is True), num_answers),
        )

    async def _continued(
        self, messages: Sequence[Message], digests: Sequence[Digest], session_id: str | None
    ) -> KnownCall | None:
        """The call that a history continues: of this process, else of any."""
        answered = [number for number, message in enumerate(messages, 1) if message["role"] == "assistant"]
        if not answered:
            return None
        ends = digests[: answered[-1] + 1]
        found = self._memory.find(ends, session_id)
        if found is None or found[1] < answered[-1]:
            await self._lookup.learn_ends([digests[number] for number in answered])
            found = self._memory.find(ends, session_id)
        return found[0] if found is not None else None

    def _form(self, dialect: str) -> RouteForm:
        form, level = self._certified.form(dialect), self._certified.level
        if form.level is not level and self._below_level == "refuse":
            raise BadRequest(
                f"The upstream gives no more than capture level {form.level.value} for {dialect}, and this proxy "
                f"captures {level.value}: use another API of it (chat completions), or let the proxy record what "
                'there is with proxy.below_level = "record".',
                code="below_capture_level",
            )
        return form
