"""Stitching of raw prompts (texts and token ids) to the earlier completions that they continue.

A text that starts with an earlier prompt of its session and the whole answer to it keeps that call's exact ids, and
only the rest is tokenised; ids are sent as they are. Invariant: memory is bounded in bytes; the oldest completions are
evicted first.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

import msgspec
import xxhash

from weir.proxy.conversation.call_request import Raw
from weir.proxy.conversation.prompt_ids import IdRun, PromptIds
from weir.proxy.errors import BadRequest
from weir.proxy.rendering.renderer import Rendering
from weir.proxy.rendering.tokenizer import off_the_loop
from weir.proxy.stitching.call_cache import KnownCall, first_difference
from weir.proxy.stitching.continuation import Prompt
from weir.store.records.call_record import Stitch, unpack_ids

_HEAD_CHARACTERS = 16  # texts are indexed by so many of their first characters
_PER_HEAD = 64  # completions with the same head

Head = tuple[str | None, str]  # session (None: any), and how the text begins


@dataclass(frozen=True, slots=True, kw_only=True)
class _Completion:
    """A recorded completion."""

    call: KnownCall
    was_cut: bool  # at a stop string, which the ids still contain
    length: int  # of the text of prompt and answer, in characters
    digest: bytes  # of that text


class RawPrompts:
    """Makes raw prompts, with recent completions."""

    def __init__(self, rendering: Rendering, limit_bytes: int) -> None:
        self._rendering = rendering
        self._limit_bytes = limit_bytes
        self._num_bytes = 0
        self._latest: OrderedDict[str, tuple[str, _Completion]] = OrderedDict()  # by call: head and completion
        self._by_head: dict[Head, list[_Completion]] = {}

    async def plan(self, raw: Raw, session_id: str | None) -> Prompt:
        """The prompt of a text or a list of ids. Raises `BadRequest` for ids that the model does not have."""
        return self._of_ids(raw) if isinstance(raw, list) else await self._of_text(raw, session_id)

    def remember(self, raw: Raw, answer: str, call: KnownCall, *, was_cut: bool) -> None:
        """Add a finished completion that a later text may continue."""
        if isinstance(raw, list):
            return
        whole = raw + answer
        head = whole[:_HEAD_CHARACTERS]
        completion = _Completion(call=call, was_cut=was_cut, length=len(whole), digest=_digest(whole))
        self._latest[call.call_id] = (head, completion)
        self._num_bytes += call.num_bytes
        for session_id in (None, call.session_id):
            same = self._by_head.setdefault((session_id, head), [])
            same.append(completion)
            del same[:-_PER_HEAD]
        while self._num_bytes > self._limit_bytes and len(self._latest) > 1:
            self._evict()

    def _of_ids(self, ids: list[int]) -> Prompt:
        size = self._rendering.tokenizer.num_tokens
        unknown = next((number for number in ids if number >= size), None)
        if unknown is not None:
            raise BadRequest(f"prompt has the token id {unknown}; this model has {size} tokens.", param="prompt")
        return Prompt(ids=PromptIds.of(ids), digests=[], stitch=Stitch.NEW_ROOT)

    async def _of_text(self, text: str, session_id: str | None) -> Prompt:
        found = self._find(text, session_id)
        if found is None:
            ids = await self._encoded(text, add_special_tokens=True)
            return Prompt(ids=PromptIds.of(ids), digests=[], stitch=Stitch.NEW_ROOT)
        known = found.call
        if found.was_cut:
            ids = await self._encoded(text, add_special_tokens=True)
            return _compared(known, PromptIds.of(ids), Stitch.RETOKENISED)
        kept = _without_end(known, self._rendering.stop_ids)
        rest = await self._encoded(text[found.length :], add_special_tokens=False)
        return _compared(known, kept.ids.and_turn(rest), Stitch.TEMPLATE_STRIP)

    async def _encoded(self, text: str, *, add_special_tokens: bool) -> list[int]:
        encode = self._rendering.tokenizer.encode
        return await off_the_loop(len(text), lambda: encode(text, add_special_tokens=add_special_tokens))

    def _find(self, text: str, session_id: str | None) -> _Completion | None:
        """The completion of the session that is the longest prefix of a text; of equal ones the latest."""
        heads = (text[:length] for length in range(1, _HEAD_CHARACTERS + 1))
        candidates = [one for head in heads for one in self._by_head.get((session_id, head), ())]
        for one in sorted(candidates, key=lambda one: one.length)[::-1]:
            if one.length <= len(text) and _digest(text[: one.length]) == one.digest:
                return one
        return None

    def _evict(self) -> None:
        """Drop the oldest completion."""
        _, (head, completion) = self._latest.popitem(last=False)
        self._num_bytes -= completion.call.num_bytes
        for session_id in (None, completion.call.session_id):
            others = [one for one in self._by_head.get((session_id, head), ()) if one is not completion]
            if others:
                self._by_head[session_id, head] = others
            else:
                self._by_head.pop((session_id, head), None)


def _compared(known: KnownCall, ids: PromptIds, reason: Stitch) -> Prompt:
    """A prompt that continues a known call; `reason` is its stitch where its ids are not that call's."""
    differs_at = first_difference(unpack_ids(ids.packed), known.exact)
    return Prompt(
        ids=ids,
        digests=[],
        stitch=Stitch.BRIDGED if differs_at is None else reason,
        known=known,
        continues=True,
        differs_at=differs_at,
    )


def _digest(text: str) -> bytes:
    return xxhash.xxh3_128_digest(text.encode(errors="surrogatepass"))


def _without_end(known: KnownCall, stop_ids: list[int]) -> KnownCall:
    """The call without the token that ended its answer, because the text continues there."""
    output = unpack_ids(known.output)
    if not len(output) or int(output[-1]) not in stop_ids:
        return known
    return msgspec.structs.replace(known, said=IdRun(known.asked, known.output[:-4], None))
