"""Which recorded call a request continues, and the prompt ids that follow from it.

A history is never tokenised again when it can be avoided: the prompt is the earlier call's exact prompt and output
ids plus the rendering of the new messages. Invariants: a `bridged` prompt starts with those ids byte for byte; any
other prompt says why not, and where it first differs from the call that it was compared with. Not here: where earlier
calls are remembered (stitch_memory.py) or looked up (following.py), and parenthood, which readers compute from the ids.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from weir.proxy.conversation.call_request import CallRequest, Message
from weir.proxy.conversation.digests import Digest, chain
from weir.proxy.conversation.parsed_history import num_characters
from weir.proxy.conversation.prompt_ids import PromptIds
from weir.proxy.errors import BadRequest
from weir.proxy.rendering.renderer import Rendering
from weir.proxy.rendering.tokenizer import off_the_loop
from weir.proxy.stitching.call_cache import KnownCall, StitchMemory, first_difference
from weir.proxy.stitching.store_lookup import Following
from weir.store.records.call_record import Stitch, unpack_ids


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """The ids that a call is sent with, and where they come from."""

    ids: PromptIds
    digests: list[Digest]  # of every prefix of the request's messages
    stitch: Stitch
    known: KnownCall | None = None  # the call that was bridged from or compared with
    continues: bool = False  # whether it goes on where `known` ended: by its messages, or by the very ids
    differs_at: int | None = None

    @property
    def new_digests(self) -> list[Digest]:
        """Of the messages that no earlier call of the conversation had; before them, what they go on from."""
        return self.digests[self.known.num_messages + 1 :] if self.known and self.continues else self.digests


class Stitching:
    """Plans the prompts of one process's calls, with what it remembers and what it can look up."""

    def __init__(self, rendering: Rendering, memory: StitchMemory, following: Following) -> None:
        self._rendering = rendering
        self._memory = memory
        self._following = following

    async def plan(self, request: CallRequest, session_id: str | None) -> Prompt:
        """The prompt of a request; where a part of its history is unknown, the store is looked into first."""
        digests = digests_of(request)
        found = self._memory.find(answered_digests(request, digests), session_id)
        num_known = found[1] if found is not None else 0
        unknown = [
            digests[number]
            for number, message in enumerate(request.messages[num_known:], num_known + 1)
            if message["role"] == "assistant"
        ]
        if unknown:
            await self._following.learn_ends(unknown)
        num_new = num_characters(request.messages[num_known:])
        return await off_the_loop(
            num_new, lambda: plan_prompt(self._rendering, self._memory, request, session_id, digests)
        )


def digests_of(request: CallRequest) -> list[Digest]:
    """Digests of every prefix of the messages."""
    return request.digests if request.digests is not None else chain(request.tools, request.messages)


def answered_digests(request: CallRequest, digests: Sequence[Digest]) -> Sequence[Digest]:
    """The digests of the parts of a history that a call may have ended: all but the whole, where a question ends it."""
    return digests if request.messages and request.messages[-1]["role"] == "assistant" else digests[:-1]


def has_answers(messages: Sequence[Message]) -> bool:
    """Whether the agent sends back what some model said before."""
    return any(message["role"] == "assistant" for message in messages)


def plan_prompt(
    rendering: Rendering,
    memory: StitchMemory,
    request: CallRequest,
    session_id: str | None,
    digests: list[Digest] | None = None,
) -> Prompt:
    """The prompt of a request: bridged from the call that it continues, else rendered in full, and why."""
    digests = digests if digests is not None else digests_of(request)
    found = memory.find(answered_digests(request, digests), session_id)
    if found is None:
        return _rendered_afresh(rendering, memory, request, digests, session_id)
    known, num_messages = found
    new_messages = request.messages[num_messages:]
    rewritten = has_answers(new_messages)
    if rewritten and request.messages[num_messages - 1]["role"] != "assistant":  # an empty answer, which names nobody
        return _rendered_afresh(rendering, memory, request, digests, session_id)
    if new_messages and not rewritten:
        new_ids = rendering.extension(known.last_turn, unpack_ids(known.output).tolist(), new_messages, request.tools)
        if new_ids is not None:
            ids = known.ids.and_turn(new_ids)
            return Prompt(ids=ids, digests=digests, stitch=Stitch.BRIDGED, known=known, continues=True)
    reason = (
        Stitch.HISTORY_REWRITTEN if rewritten else Stitch.TEMPLATE_STRIP if rendering.can_bridge else Stitch.RETOKENISED
    )
    return _compared(rendering.render(request.messages, request.tools), digests, known, reason, continues=True)


def _rendered_afresh(
    rendering: Rendering, memory: StitchMemory, request: CallRequest, digests: list[Digest], session_id: str | None
) -> Prompt:
    ids = rendering.render(request.messages, request.tools)
    earlier = memory.of_session(session_id) if session_id is not None else []
    if earlier:
        prompt = _beside_its_session(rendering, request, ids, digests, earlier)
        if prompt is not None:
            return prompt
    if has_answers(request.messages):
        known = memory.find_partial(digests, ids, session_id)
        if known is not None:
            return _compared(ids, digests, known, Stitch.HISTORY_REWRITTEN, continues=False)
    return Prompt(ids=PromptIds.of(ids), digests=digests, stitch=Stitch.NEW_ROOT)


def _beside_its_session(
    rendering: Rendering, request: CallRequest, ids: list[int], digests: list[Digest], earlier: Sequence[KnownCall]
) -> Prompt | None:
    """A history that keeps the first message of its session's latest calls and rewrites what came after it.

    Shorter than theirs: compacted. Else rewritten, if it has answers. None where it shares nothing with them, or only
    begins afresh, as sub-agents and repeated questions do.
    """
    exact = [call for call in earlier if first_difference(ids, call.prompt + call.output) is None]
    if exact:
        return _compared(ids, digests, exact[-1], Stitch.BRIDGED, continues=True)
    shared = [first_difference(ids, call.prompt + call.output) or 0 for call in earlier]
    longest = max(shared)
    if longest < _length_of_first_message(rendering, request, ids) or longest == len(ids):
        return None
    call = max(zip(shared, range(len(earlier)), earlier, strict=True))[2]
    shorter = len(request.messages) < call.num_messages
    if not shorter and not has_answers(request.messages):
        return None
    reason = Stitch.COMPACTED if shorter else Stitch.HISTORY_REWRITTEN
    return _compared(ids, digests, call, reason, continues=False)


def _length_of_first_message(rendering: Rendering, request: CallRequest, ids: list[int]) -> int:
    """How many of `ids` render the tools and the first message; all of them where the template needs more than that."""
    try:
        alone = rendering.render(request.messages[:1], request.tools)
    except BadRequest:
        return len(ids)
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(ids, alone, strict=False)))


def _compared(ids: list[int], digests: list[Digest], known: KnownCall, reason: Stitch, *, continues: bool) -> Prompt:
    """A full rendering beside the ids of the call that it should have continued."""
    differs_at = first_difference(ids, known.prompt + known.output)
    stitch, continues = (Stitch.BRIDGED, True) if differs_at is None else (reason, continues)
    prompt_ids = PromptIds.of(ids)
    return Prompt(
        ids=prompt_ids, digests=digests, stitch=stitch, known=known, differs_at=differs_at, continues=continues
    )
