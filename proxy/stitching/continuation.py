"""Stitching: which recorded call a request continues, and the prompt ids that follow from it.

A history is tokenised again only where that cannot be avoided: the prompt is the earlier call's exact prompt and output
ids plus the rendering of the new messages. Invariants: a `bridged` prompt starts with exactly those ids; any other
prompt has a reason, and the index at which it first differs from the call that it was compared with. Parenthood is
computed from the ids by readers, never here.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import msgspec

from weir.proxy.conversation.call_request import CallRequest, Message
from weir.proxy.conversation.digests import Digest, chain, extend, under
from weir.proxy.conversation.parsed_history import num_characters
from weir.proxy.conversation.prompt_ids import PromptIds
from weir.proxy.errors import BadRequest
from weir.proxy.rendering.renderer import Rendering
from weir.proxy.rendering.tokenizer import off_the_loop
from weir.proxy.stitching.call_cache import CallCache, KnownCall, first_difference
from weir.proxy.stitching.store_lookup import StoreLookup
from weir.store.records.call_record import Stitch, unpack_ids


class Prompt(msgspec.Struct, frozen=True, kw_only=True):
    """The ids that a call is sent with, and where they come from."""

    ids: PromptIds
    digests: list[Digest]  # of every prefix of the request's messages
    stitch: Stitch
    known: KnownCall | None = None  # the call that it was bridged from or compared with
    continues: bool = False  # whether it continues `known`, by its messages or by its ids
    differs_at: int | None = None
    said: list[int] | None = None  # the answer that the request continues, where a call gave it

    @property
    def new_digests(self) -> list[Digest]:
        """Digests of the messages that no earlier call had, after that of the history which they continue."""
        return self.digests[self.known.num_messages + 1 :] if self.known and self.continues else self.digests


class Stitching:
    """Makes the prompts of one process's calls, from its cache and from the store."""

    def __init__(self, rendering: Rendering, memory: CallCache, lookup: StoreLookup) -> None:
        self._rendering = rendering
        self._memory = memory
        self._lookup = lookup

    async def plan(self, request: CallRequest, session_id: str | None) -> Prompt:
        """The prompt of a request; first looks up unknown parts of its history in the store. Raises `BadRequest`."""
        digests = digests_of(request)
        rendering = self._rendering.under(request.template_variables)
        if request.prefill:
            begun = await self._begun(rendering, request, digests, session_id)
            if begun is not None:
                return begun
        found = self._memory.find(answered_digests(request, digests), session_id)
        num_known = found[1] if found is not None else 0
        unknown = [
            digests[number]
            for number, message in enumerate(request.messages[num_known:], num_known + 1)
            if message["role"] == "assistant"
        ]
        if unknown:
            await self._lookup.learn_ends(unknown)
        num_new = num_characters(request.messages[num_known:])
        return await off_the_loop(num_new, lambda: plan_prompt(rendering, self._memory, request, session_id, digests))

    async def _begun(
        self, rendering: Rendering, request: CallRequest, digests: list[Digest], session_id: str | None
    ) -> Prompt | None:
        """The exact prompt and answer of the call whose answer is to be continued; None where no call gave it."""
        variables = request.template_variables
        answer: Message = {"role": "assistant", "content": request.prefill}
        whole = under(extend(under(digests[-1], variables), answer), variables)
        found = self._memory.find([*digests, whole], session_id)
        if found is None or found[1] < len(digests):
            await self._lookup.learn_ends([whole])
            found = self._memory.find([*digests, whole], session_id)
        if found is None or found[1] < len(digests):
            return None
        known, _ = found
        said: list[int] = unpack_ids(known.output).tolist()
        ended = bool(said) and said[-1] in rendering.stop_ids
        return Prompt(
            ids=PromptIds.unpacked(known.prompt),
            digests=digests,
            stitch=Stitch.TEMPLATE_STRIP if ended else Stitch.BRIDGED,
            known=known,
            continues=True,
            differs_at=known.said.num_ids - 1 if ended else None,
            said=said[:-1] if ended else said,
        )


def digests_of(request: CallRequest) -> list[Digest]:
    """Digests of every prefix of the messages, under the variables of the request's wishes."""
    digests = request.digests if request.digests is not None else chain(request.tools, request.messages)
    variables = request.template_variables
    return [under(digest, variables) for digest in digests] if variables else digests


def answered_digests(request: CallRequest, digests: Sequence[Digest]) -> Sequence[Digest]:
    """The digests of the prefixes that a call may have completed: not the whole history where a question ends it."""
    return digests if request.messages and request.messages[-1]["role"] == "assistant" else digests[:-1]


def has_answers(messages: Sequence[Message]) -> bool:
    """Whether the messages hold an earlier answer of a model."""
    return any(message["role"] == "assistant" for message in messages)


def plan_prompt(
    rendering: Rendering,
    memory: CallCache,
    request: CallRequest,
    session_id: str | None,
    digests: list[Digest] | None = None,
) -> Prompt:
    """The prompt of a request: bridged from the call that it continues, else rendered in full, with the reason."""
    digests = digests if digests is not None else digests_of(request)
    found = memory.find(answered_digests(request, digests), session_id)
    if found is None:
        return _rendered_afresh(rendering, memory, request, digests, session_id)
    known, num_messages = found
    new_messages = request.messages[num_messages:]
    rewritten = has_answers(new_messages)
    if (
        rewritten and request.messages[num_messages - 1]["role"] != "assistant"
    ):  # an empty answer, which has no digest of its own
        return _rendered_afresh(rendering, memory, request, digests, session_id)
    if new_messages and not rewritten:
        turn = unpack_ids(known.prompt).tolist() if rendering.needs_whole_prompts else known.last_turn
        output = unpack_ids(known.output).tolist()
        new_ids = rendering.extension(turn, output, new_messages, request.tools, request.messages)
        if new_ids is not None:
            ids = known.ids.and_turn(new_ids)
            return Prompt(ids=ids, digests=digests, stitch=Stitch.BRIDGED, known=known, continues=True)
    reason = Stitch.HISTORY_REWRITTEN if rewritten else Stitch.TEMPLATE_STRIP
    return _compared(rendering.render(request.messages, request.tools), digests, known, reason, continues=True)


def _rendered_afresh(
    rendering: Rendering, memory: CallCache, request: CallRequest, digests: list[Digest], session_id: str | None
) -> Prompt:
    ids = rendering.render(request.messages, request.tools)
    earlier = memory.of_session(session_id) if session_id is not None else []
    exact = [call for call in earlier if first_difference(ids, call.exact) is None]
    if exact:
        return _compared(ids, digests, exact[-1], Stitch.BRIDGED, continues=True)
    before_answers = _num_before_last_answer(request.messages)
    rewritten = memory.find_asked(digests[: before_answers + 1], ids, session_id)
    if rewritten is not None:
        return _compared(ids, digests, rewritten, Stitch.HISTORY_REWRITTEN, continues=False)
    if earlier:
        prompt = _compared_with_session(rendering, request, ids, digests, earlier)
        if prompt is not None:
            return prompt
    return Prompt(ids=PromptIds.of(ids), digests=digests, stitch=Stitch.NEW_ROOT)


def _num_before_last_answer(messages: Sequence[Message]) -> int:
    """The number of messages before the last answer of a model; 0 where there is none."""
    return max((number for number, message in enumerate(messages) if message["role"] == "assistant"), default=0)


def _compared_with_session(
    rendering: Rendering, request: CallRequest, ids: list[int], digests: list[Digest], earlier: Sequence[KnownCall]
) -> Prompt | None:
    """The prompt of a history that keeps the first message of its session's latest calls and replaces the rest.

    A shorter history than theirs is compacted, a longer one with other answers is rewritten. Either needs calls that it
    replaces: a conversation that begins with the same examples, or with as many, replaces none. None where it shares
    nothing with them, or starts a new conversation, as sub-agents and repeated questions do.
    """
    first = _length_of(rendering, request, ids, 1)
    shared = [(first_difference(ids, call.exact) or 0, call) for call in earlier]
    related = [(length, number, call) for number, (length, call) in enumerate(shared) if length >= first]
    if not related:
        return None
    longest, _, call = max(related, key=lambda one: one[:2])
    if longest == len(ids):
        return None
    num_messages = len(request.messages)
    replaces = min(other.num_messages for _, _, other in related) < max(num_messages, call.num_messages)
    if replaces and num_messages < call.num_messages:
        return _compared(ids, digests, call, Stitch.COMPACTED, continues=False)
    answered = _num_before_last_answer(request.messages) + 1
    if replaces and answered > 1 and longest < _length_of(rendering, request, ids, answered):
        return _compared(ids, digests, call, Stitch.HISTORY_REWRITTEN, continues=False)
    return None


def _length_of(rendering: Rendering, request: CallRequest, ids: list[int], num_messages: int) -> int:
    """How many of `ids` render the tools and the first messages; all where the template needs more messages."""
    try:
        alone = rendering.render(request.messages[:num_messages], request.tools)
    except BadRequest:
        return len(ids)
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(ids, alone, strict=False)))


def _compared(ids: list[int], digests: list[Digest], known: KnownCall, reason: Stitch, *, continues: bool) -> Prompt:
    """The prompt of a full rendering, compared with the call that it should have continued."""
    differs_at = first_difference(ids, known.exact)
    stitch, continues = (Stitch.BRIDGED, True) if differs_at is None else (reason, continues)
    prompt_ids = PromptIds.of(ids)
    return Prompt(
        ids=prompt_ids, digests=digests, stitch=stitch, known=known, differs_at=differs_at, continues=continues
    )
