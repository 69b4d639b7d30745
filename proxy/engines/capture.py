"""The output of one call, joined from its pieces: token ids, logprobs and version spans, in order.

A call is sent upstream once, or several times when an abort or a dead engine cut it (every time is a piece). Each piece
answers with one JSON body or a stream of chunks, cumulative or incremental; `completion_tokens` counts the tokens of
the piece so far, so the new ones are the last `completion_tokens - known` of each list, whichever form the engine
uses.

Invariants: ids, logprobs and the likeliest tokens that were asked for grow together; version spans cover them without
gap or overlap; no token is added twice; labels are what the engine reported, never what was asked for; where it
reported no integer, the assumed version, marked as such. Pure: no I/O, no clock.
"""

from __future__ import annotations

from typing import Any

import msgspec

from weir.proxy.engines.routed_experts import RoutedExperts
from weir.proxy.engines.version_labels import version_label
from weir.store.records.call_record import VersionSpan


class Finish(msgspec.Struct, frozen=True):
    """The engine's reason why a piece ended."""

    type: str
    matched: int | str | list[int] | None = None
    message: str | None = None
    status_code: int | None = None


class ReportedSpan(msgspec.Struct, frozen=True):
    """Tokens `start:end` of a piece were sampled by `version`."""

    version: str | int
    start: int
    end: int


class Meta(msgspec.Struct, frozen=True):
    """The fields of an engine's meta_info that are recorded or served."""

    completion_tokens: int | None = None
    finish_reason: Finish | None = None
    prompt_tokens: int = 0
    cached_tokens: int = 0
    weight_version: str | int | None = None
    weight_versions: list[ReportedSpan] | None = None
    output_token_logprobs: list[tuple[float, int, Any]] | None = None
    input_token_logprobs: list[tuple[float | None, int, Any]] | None = None
    output_token_sampling_logprobs: list[float | None] | None = None
    output_top_logprobs: list[list[tuple[float, int, Any]] | None] | None = None
    routed_experts: str | None = None


class Chunk(msgspec.Struct, frozen=True):
    """One JSON answer of /generate, or one event of its stream."""

    output_ids: list[int]
    meta_info: Meta


decode_chunk = msgspec.json.Decoder(Chunk).decode
decode_chunks = msgspec.json.Decoder(list[Chunk]).decode


class PromptLogprobs(msgspec.Struct, frozen=True):
    """Logprobs of the last tokens of a prompt."""

    ids: list[int]
    logprobs: list[float]

    @classmethod
    def of(cls, entries: list[tuple[float | None, int, Any]]) -> PromptLogprobs:
        """From an engine's entries, of which the first has no logprob. Raises `MalformedChunk`."""
        known = [(logprob, token) for logprob, token, _ in entries[1:] if logprob is not None]
        if len(known) != len(entries) - 1:
            raise MalformedChunk(f"only {len(known)} of {len(entries) - 1} prompt tokens came with a logprob")
        return cls([token for _, token in known], [logprob for logprob, _ in known])


class MalformedChunk(ValueError):
    """An engine's chunk contradicts itself or an earlier one; the message says how."""


class Capture:
    """The output of one call so far: fed with chunks, after `begin_piece` each time the call is sent."""

    __slots__ = (
        *("_assumed", "_piece_start", "_versions", "cached_tokens", "finish", "ids", "logprobs", "prompt"),
        *("num_top", "rids", "routed", "sampling_logprobs", "top"),
    )

    def __init__(self, assumed_version: int | None = None, num_top: int = 0) -> None:
        """`assumed_version` is the version of weights that the engine does not name by an integer.

        `num_top` of the likeliest tokens are wanted at each position.
        """
        self._assumed = assumed_version
        self.ids: list[int] = []
        self.logprobs: list[float] = []
        self.sampling_logprobs: list[float] | None = []  # after truncation; None where a token came without
        self.num_top = num_top
        self.top: list[list[tuple[int, float]]] = []  # token ids with their logprobs, likeliest first
        self.routed: RoutedExperts | None = None  # takes the experts, where they are wanted
        self.rids: list[str] = []
        self.finish: Finish | None = None
        self.prompt: PromptLogprobs | None = None
        self.cached_tokens = 0
        self._versions: list[VersionSpan] = []
        self._piece_start = 0

    def restart(self) -> None:
        """Forget what was captured: the next piece is the whole answer anew."""
        self.ids, self.logprobs, self.sampling_logprobs, self.rids = [], [], [], []
        self._versions, self.top = [], []
        if self.routed is not None:
            self.routed = self.routed.anew()

    def begin_piece(self, rid: str) -> None:
        """Start a piece: the call is sent (again), with everything captured so far as part of its prompt."""
        self.rids.append(rid)
        self.finish = None
        self._piece_start = len(self.ids)

    def feed(self, chunk: Chunk) -> int:
        """Add one chunk of the current piece; returns the number of new tokens. Raises `MalformedChunk`."""
        meta = chunk.meta_info
        start = len(self.ids)
        # An engine that aborts a call before it ran may leave the count out.
        counted = meta.completion_tokens if meta.completion_tokens is not None else len(chunk.output_ids)
        num_new = counted - (start - self._piece_start)
        if num_new > 0:
            top = self._new_top(meta.output_top_logprobs, num_new)
            self._extend(chunk.output_ids, meta.output_token_logprobs, num_new)
            self._extend_sampling(meta.output_token_sampling_logprobs, num_new)
            self.top += top
            self._append_span(start, len(self.ids), version_label(meta.weight_version, self._assumed))
        elif num_new < 0:
            raise MalformedChunk(f"the engine counts {counted} tokens after it counted {counted - num_new}")
        if meta.weight_versions:
            self._replace_versions(meta.weight_versions)
        if meta.input_token_logprobs and self.prompt is None and self._piece_start == 0:
            self.prompt = PromptLogprobs.of(meta.input_token_logprobs)
        if meta.finish_reason is not None:
            self.finish = meta.finish_reason
            if self.routed is not None:
                self.routed.add(meta.routed_experts, len(self.ids))
        if len(self.rids) == 1:
            self.cached_tokens = meta.cached_tokens
        return num_new

    @property
    def spans(self) -> tuple[VersionSpan, ...]:
        """Version spans over all tokens; neighbours with one label are one span."""
        return tuple(self._versions)

    @property
    def last_version(self) -> str | None:
        """The version of the last token, as the engine named it."""
        return self._versions[-1].label if self._versions else None

    def _extend(self, ids: list[int], logprobs: list[tuple[float, int, Any]] | None, num_new: int) -> None:
        if logprobs is None or len(ids) < num_new or len(logprobs) < num_new:
            raise MalformedChunk(
                f"{num_new} new tokens were counted, but {len(ids)} ids and "
                f"{len(logprobs) if logprobs is not None else 'no'} logprobs came"
            )
        new_ids = ids[-num_new:]
        new_logprobs = logprobs[-num_new:]
        if [entry[1] for entry in new_logprobs] != new_ids:
            raise MalformedChunk("the ids beside the logprobs are not the output ids")
        self.ids += new_ids
        self.logprobs += [entry[0] for entry in new_logprobs]

    def _extend_sampling(self, reported: list[float | None] | None, num_new: int) -> None:
        new = [logprob for logprob in (reported or ())[-num_new:] if logprob is not None]
        if self.sampling_logprobs is not None and len(new) == num_new:
            self.sampling_logprobs += new
        else:
            self.sampling_logprobs = None

    def _new_top(
        self, reported: list[list[tuple[float, int, Any]] | None] | None, num_new: int
    ) -> list[list[tuple[int, float]]]:
        if not self.num_top:
            return []
        rows = [[(token, logprob) for logprob, token, _ in row or ()] for row in (reported or ())[-num_new:]]
        if len(rows) != num_new or any(len(row) != self.num_top for row in rows):
            raise MalformedChunk(
                f"the {self.num_top} likeliest tokens were asked for at each of {num_new} positions, and "
                f"{[len(row) for row in rows]} came"
            )
        return rows

    def _append_span(self, start: int, end: int, label: str) -> None:
        last = self._versions[-1] if self._versions else None
        if last is not None and last.label == label:
            self._versions[-1] = VersionSpan(last.start, end, label)
        elif end > start:
            self._versions.append(VersionSpan(start, end, label))

    def _replace_versions(self, reported: list[ReportedSpan]) -> None:
        """Replace the piece's versions by the spans that the engine reported, which must cover it."""
        offset = self._piece_start
        covered = 0
        for span in reported:
            if span.start != covered or span.end < span.start:
                raise MalformedChunk(f"weight_versions leave a gap or overlap at token {covered} of the piece")
            covered = span.end
        if covered != len(self.ids) - offset:
            raise MalformedChunk(f"weight_versions cover {covered} of the piece's {len(self.ids) - offset} tokens")
        self._versions = [VersionSpan(s.start, min(s.end, offset), s.label) for s in self._versions if s.start < offset]
        for span in reported:
            label = version_label(span.version, self._assumed)
            self._append_span(offset + span.start, offset + span.end, label)
