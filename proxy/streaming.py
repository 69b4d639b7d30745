"""A streamed answer while it comes: which of its tokens are reasoning, which are text, and what may be shown already.

Invariant: what is shown is always a prefix of what the finished answer says. Where that cannot be told yet it is held
back: white space that a later strip may take, text that may be the start of a stop string, everything after a tool call
opens. The finished answer comes from the renderer; `rest` is what is left to show then. Pure, but for the decoder's
state.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass

from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream

from weir.proxy.dialect import NOTHING, Answer, Delta


@dataclass(frozen=True, slots=True, kw_only=True)
class Markers:
    """The token ids that structure an answer, and how the renderer treats its text."""

    think_open: int | None
    think_close: int | None
    tool_start: int | None
    stop_ids: frozenset[int]
    special_ids: frozenset[int]
    starts_in_reasoning: bool
    strips_content: bool


class _Mode(enum.Enum):
    START = enum.auto()  # only white space so far: reasoning may still open
    REASONING = enum.auto()
    CONTENT = enum.auto()
    HELD = enum.auto()  # the rest is known when the answer is finished


class StreamedText:
    """Feed it output ids; it returns what may be shown of them."""

    def __init__(self, tokenizer: Tokenizer, markers: Markers | None, stops: Sequence[str]) -> None:
        self._tokenizer = tokenizer
        self._markers = markers
        self._decoder = DecodeStream(skip_special_tokens=False)
        self._mode = _Mode.HELD if markers is None else _Mode.REASONING if markers.starts_in_reasoning else _Mode.START
        self._content = _Shown(stops, strips=markers is None or markers.strips_content)
        self._reasoning = _Shown(stops, strips=True)
        self._structure: frozenset[int] = frozenset()
        if markers is not None:
            named = {n for n in (markers.think_open, markers.think_close, markers.tool_start) if n is not None}
            self._structure = markers.stop_ids | markers.special_ids | named

    @property
    def stopped(self) -> bool:
        """A stop string was seen: the answer ends before it, whatever else comes."""
        return self._content.stopped or self._reasoning.stopped

    def feed(self, ids: Sequence[int]) -> Delta:
        """Take in new output ids; returns what may be shown now."""
        if self._mode is _Mode.HELD:
            return NOTHING
        if self._structure.isdisjoint(ids):
            self._add(self._decoder.step(self._tokenizer, list(ids)) or "")
        else:
            for number in ids:
                self._take(number)
        if self._mode is _Mode.START:
            return NOTHING
        return Delta(content=self._content.take(), reasoning=self._reasoning.take())

    def rest(self, answer: Answer) -> Delta:
        """What the finished answer says beyond what was shown."""
        return Delta(
            content=self._content.rest(answer.content),
            reasoning=self._reasoning.rest(answer.reasoning or ""),
            tool_calls=answer.tool_calls,
        )

    def _take(self, number: int) -> None:
        marks = self._markers
        if marks is None or self._mode is _Mode.HELD:
            return
        if number not in self._structure:
            self._add(self._decoder.step(self._tokenizer, number) or "")
        elif number == marks.think_open and self._mode in (_Mode.START, _Mode.REASONING):
            self._switch(_Mode.REASONING)
        elif number == marks.think_close and self._mode is _Mode.REASONING:
            self._switch(_Mode.CONTENT)
        else:
            self._mode = _Mode.HELD

    def _switch(self, mode: _Mode) -> None:
        self._mode = mode
        self._content.clear()
        self._decoder = DecodeStream(skip_special_tokens=False)

    def _add(self, text: str) -> None:
        # Bytes that are no UTF-8 decode differently alone and in company: what follows is shown when all is there.
        sound, broken, _ = text.partition("\ufffd")
        if self._mode is _Mode.START and text.strip():
            self._mode = _Mode.CONTENT
        (self._reasoning if self._mode is _Mode.REASONING else self._content).add(sound)
        if broken:
            self._mode = _Mode.HELD


class _Shown:
    """One growing text, and how much of it was shown."""

    def __init__(self, stops: Sequence[str], *, strips: bool) -> None:
        self._stops = stops
        self._longest = max((len(stop) for stop in stops), default=0)
        self._strips = strips
        self._pending = ""
        self._shown = ""
        self.stopped = False

    def add(self, text: str) -> None:
        self._pending += text

    def clear(self) -> None:
        self._pending = ""

    def take(self) -> str:
        """Show what can no longer change."""
        if self.stopped or not self._pending:
            return ""
        if self._strips and not self._shown:
            self._pending = self._pending.lstrip()
        text = self._without_stop(self._pending)
        if not self.stopped and self._longest:
            text = text[: max(0, len(text) - self._longest + 1)]
        if self._strips:
            text = text.rstrip()
        self._pending = self._pending[len(text) :]
        self._shown += text
        return text

    def rest(self, final: str) -> str:
        return final[len(self._shown) :] if final.startswith(self._shown) else ""

    def _without_stop(self, text: str) -> str:
        found = [position for position in (text.find(stop) for stop in self._stops) if position >= 0]
        if found:
            self.stopped = True
            return text[: min(found)]
        return text


def cut_at_stop(answer: Answer, stops: Sequence[str]) -> tuple[Answer, str | None]:
    """The answer up to the first stop string in its reasoning or content, and that string; clients never see one."""
    for text in (answer.reasoning or "", answer.content):
        hits = [(text.find(stop), stop) for stop in stops if stop in text]
        if not hits:
            continue
        position, stop = min(hits)
        if text is answer.content:
            return Answer(content=text[:position], reasoning=answer.reasoning, tool_calls=()), stop
        return Answer(content="", reasoning=text[:position], tool_calls=()), stop
    return answer, None
