"""Incremental parsing of a streamed answer into reasoning, text and tool calls, and how much of each may be shown.

The renderer's own parser interprets the tokens so far. It runs only where the structure may change: at the start and
around every added token of the vocabulary; plain tokens in between extend the text that they follow. So each family's
own rules apply, and a stream costs a few parses, not one for each token.

Invariant: what is shown is always a prefix of the finished answer. Text that might not be one is held back: white space
at an end, text that may start a stop string or a marker, everything after reasoning that its marker did not close.
`rest` gives what is left to show when the answer is finished.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream

from weir.proxy.conversation.call_request import NOTHING, Answer, Delta, ToolCall

_MARK_START = "<"


@dataclass(frozen=True, slots=True, kw_only=True)
class Glimpse:
    """The output so far, parsed; without a tool call that is still open."""

    content: str
    reasoning: str
    tool_calls: tuple[ToolCall, ...] = ()
    is_thinking: bool = False  # the reasoning is still open
    closed_explicitly: bool = True  # later tokens cannot turn the content into reasoning


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How a family's output is parsed while it streams."""

    tokenizer: Tokenizer
    glimpse: Callable[[list[int]], Glimpse]
    structure: frozenset[int]  # token ids after which another kind of text may begin
    stop_ids: frozenset[int]
    header_id: int | None = None  # an answer that opens with it can be parsed only when it is finished
    marks: tuple[str, ...] = ()  # texts with the same effect; all start with the same character
    calls_are_text: bool = False  # a JSON object may be a tool call, and a header may come again
    skips_special: bool = False


class StreamedText:
    """The incremental parser of one answer: fed with output ids, it returns what may be shown of them."""

    def __init__(self, reading: Reading, stops: Sequence[str], forced: Sequence[int] = (), prefill: str = "") -> None:
        """`forced` ids begin the answer. A `prefill` is the text of them that is not shown, with all before it."""
        self._reading = reading
        self._hides_reasoning = bool(prefill)
        self._ids = list(forced)
        self._decoder = DecodeStream(skip_special_tokens=reading.skips_special)
        self._last_text = ""  # of the last plain tokens, and the white space before it
        self._content = _Shown(stops, reading.marks, strips_start=False, hidden=prefill)
        self._reasoning = _Shown(stops, reading.marks, strips_start=True)
        self._growing: _Shown | None = None  # the text that plain tokens extend; None: the parser must run
        self._is_held = False  # the rest is shown when the answer is finished
        self._is_ambiguous = False  # at the last parse, the content might have been reasoning
        self._num_calls = 0
        self._parsed_at = 0  # number of ids at the last parse
        self._backoff = 1  # number of further plain ids before the next parse; doubles

    @property
    def stopped(self) -> bool:
        """Whether a stop string was found, before which the answer ends."""
        return self._content.stopped or self._reasoning.stopped

    def feed(self, ids: list[int]) -> Delta:
        """Consume new output ids; returns what may be shown now."""
        if self._is_held:
            return NOTHING
        calls: tuple[ToolCall, ...] = ()
        structure = self._reading.structure
        if not structure.isdisjoint(ids):
            after = 1 + max(i for i, number in enumerate(ids) if number in structure)
            calls = self._take_structure(ids[:after])
            ids = ids[after:]
        if ids and not self._is_held:
            self._take_plain(ids)
            if self._growing is None and len(self._ids) - self._parsed_at >= self._backoff:
                self._parsed_at, self._backoff = len(self._ids), 2 * self._backoff
                calls += self._parse()
        return self._shown(calls)

    def _shown(self, calls: tuple[ToolCall, ...]) -> Delta:
        """The newly shown part of each text; nothing after a stop string in the reasoning."""
        reasoning = "" if self._hides_reasoning else self._reasoning.take()
        if self._reasoning.stopped:
            return Delta(content="", reasoning=reasoning) if reasoning else NOTHING
        content = self._content.take()
        return (
            Delta(content=content, reasoning=reasoning, tool_calls=calls) if content or reasoning or calls else NOTHING
        )

    def rest(self, answer: Answer) -> Delta:
        """The part of the finished answer that was not shown yet."""
        return Delta(
            content=self._content.rest(answer.content),
            reasoning=self._reasoning.rest(answer.reasoning or ""),
            tool_calls=answer.tool_calls[self._num_calls :],
        )

    def _take_plain(self, ids: list[int]) -> None:
        self._ids += ids
        text = self._decoder.step(self._reading.tokenizer, ids) or ""
        if "\ufffd" in text:
            # Invalid UTF-8 decodes differently alone and next to other bytes: the rest waits for the end.
            self._is_held = True
        elif self._growing is not None and self._growing.add(text):
            self._reset_growth()
        self._last_text = self._last_text + text if text.isspace() else text or self._last_text

    def _take_structure(self, ids: list[int]) -> tuple[ToolCall, ...]:
        """Consume ids that end with a structural token, parse, and reset text growth. Returns new tool calls."""
        stop = next((i for i, number in enumerate(ids) if number in self._reading.stop_ids), None)
        self._ids += ids if stop is None else ids[:stop]
        self._decoder = DecodeStream(skip_special_tokens=self._reading.skips_special)
        self._last_text = ""
        if self._reading.calls_are_text or self._ids[:1] == [self._reading.header_id]:
            self._content.drop()
            self._is_held = True
            return ()
        calls = self._parse()
        self._reset_growth()
        self._is_held = self._is_held or stop is not None
        return calls

    def _reset_growth(self) -> None:
        self._growing = None
        self._parsed_at, self._backoff = 0, 1

    def _parse(self) -> tuple[ToolCall, ...]:
        """Parse all ids so far; update the texts and which of them grows. Returns new tool calls."""
        glimpse = self._reading.glimpse(self._ids)
        if "\ufffd" in glimpse.content + glimpse.reasoning:
            return ()
        space = self._last_text[len(self._last_text.rstrip()) :]
        self._reasoning.grow(glimpse.reasoning, space)
        if glimpse.is_thinking or not glimpse.closed_explicitly:
            self._content.drop()
            self._is_ambiguous = True
            # White space alone does not show how much of it preceded the last structural token.
            is_certain = not glimpse.reasoning or not self._last_text.isspace()
            self._growing = self._reasoning if glimpse.is_thinking and is_certain else None
            return ()
        if self._reading.calls_are_text and glimpse.content.lstrip().startswith("{"):
            self._is_held = True
            return ()
        has_grown = self._content.grow(glimpse.content, space)
        # Content that grew because an ambiguity was resolved need not be what the last tokens extend.
        self._growing = self._content if has_grown and not self._is_ambiguous else None
        self._is_ambiguous = False
        new = glimpse.tool_calls[self._num_calls :]
        self._num_calls += len(new)
        return new


class _Shown:
    """One growing text, and how much of it was shown."""

    __slots__ = ("_hidden", "_longest_stop", "_marks", "_pending", "_shown", "_stops", "_strips_start", "stopped")

    def __init__(self, stops: Sequence[str], marks: Sequence[str], *, strips_start: bool, hidden: str = "") -> None:
        """`hidden` begins the text and is never shown; no stop string is looked for in it."""
        self._hidden = hidden
        assert all(mark.startswith(_MARK_START) for mark in marks)
        self._stops = stops
        self._strips_start = strips_start
        self._marks = marks
        self._longest_stop = max((len(stop) for stop in stops), default=0)
        self._pending = ""
        self._shown: list[str] = []
        self.stopped = False

    def add(self, text: str) -> bool:
        """Append to the text; True if the part not shown yet contains a marker."""
        self._pending += text
        return _MARK_START in self._pending and any(mark in self._pending for mark in self._marks)

    def grow(self, whole: str, space: str) -> bool:
        """Replace the text by `whole`, to which `space` restores lost trailing white space; True if it has grown."""
        shown, whole = self._hidden + "".join(self._shown), whole.rstrip()
        num_before = len((shown + self._pending).rstrip())
        if not whole.startswith(shown):
            self._pending = ""
            return False
        self._pending = (whole + space)[len(shown) :]
        return len(whole) > num_before

    def drop(self) -> None:
        """Discard the part that was not shown yet."""
        self._pending = ""

    def take(self) -> str:
        """Show the part that can no longer change, and return it."""
        if self.stopped or not self._pending:
            return ""
        if self._strips_start and not self._shown:
            self._pending = self._pending.lstrip()
        text = self._pending
        if self._stops:
            text = self._without_stop(text)
        if not self.stopped and (self._longest_stop or _MARK_START in text):
            text = text[: len(text) - self._num_undecided(text)]
        text = text.rstrip()
        if text:
            self._pending = self._pending[len(text) :]
            self._shown.append(text)
        return text

    def rest(self, final: str) -> str:
        """The part of the finished text that was not shown."""
        shown = "".join(self._shown)
        return final[len(shown) :] if final.startswith(shown) else ""

    def _without_stop(self, text: str) -> str:
        found = [position for position in (text.find(stop) for stop in self._stops) if position >= 0]
        if found:
            self.stopped = True
            return text[: min(found)]
        return text

    def _num_undecided(self, text: str) -> int:
        """How many characters at the end may be part of a stop string or of a marker."""
        ends = [n for mark in self._marks for n in range(1, len(mark)) if text.endswith(mark[:n])]
        return min(max([self._longest_stop - 1, 0, *ends]), len(text))


def cut_at_stop(answer: Answer, stops: Sequence[str], prefill: str = "") -> tuple[Answer, str | None]:
    """The answer up to the first stop string in its reasoning or content, and that string; clients never see one.

    The engine ends the answer there, so that calls beside the content came before it; reasoning comes before calls.
    A stop string in a `prefill` with which the content begins ended nothing.
    """
    start = len(prefill)
    for text in (answer.reasoning or "", answer.content)[1 if prefill else 0 :]:
        hits = [(text.find(stop, start), stop) for stop in stops if stop in text[start:]]
        if not hits:
            continue
        position, stop = min(hits)
        if text is answer.content:
            return Answer(content=text[:position], reasoning=answer.reasoning, tool_calls=answer.tool_calls), stop
        return Answer(content="", reasoning=text[:position], tool_calls=()), stop
    return answer, None
