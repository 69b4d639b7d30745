"""The proxy's own log of calls: counts, and one line for every call that ended.

Invariant: prompts and answers are in the line only where `proxy.log_prompts` asks for them; keys never are.
"""

from __future__ import annotations

import logging
from typing import Any

from weir.proxy.logging_format import log_fields
from weir.proxy.metrics import Metrics
from weir.proxy.sessions.budgets import ENDED
from weir.store.records.call_record import CallRecord, FinishReason

logger = logging.getLogger("weir.proxy.calls")
_BAD = (FinishReason.ERROR, FinishReason.ABORT)


class CallLog:
    """Counts calls and writes a line for each."""

    def __init__(self, metrics: Metrics, *, log_prompts: bool) -> None:
        self._metrics = metrics
        self._log_prompts = log_prompts

    def ended(self, record: CallRecord) -> None:
        """Count a call and log its line."""
        self._metrics.count(record)
        matched = record.finish_matched
        if isinstance(matched, str) and matched.startswith(ENDED) and record.finish is FinishReason.LENGTH:
            self._metrics.budget_endings.labels(by=matched.removeprefix(ENDED), how="cut").inc()
        level = logging.WARNING if record.finish in _BAD else logging.INFO
        if logger.isEnabledFor(level):
            log_fields(logger, level, "call", self._fields(record))

    def _fields(self, record: CallRecord) -> dict[str, Any]:
        first_us = record.first_token_us
        fields = {
            "call": record.call_id,
            "session": record.session_id,
            "dialect": record.dialect,
            "finish": record.finish.value,
            "matched": record.finish_matched,
            "prompt_tokens": len(record.prompt_ids) // 4,
            "output_tokens": len(record.output_ids) // 4,
            "seconds": (record.finished_us - record.started_us) / 1e6,
            "first_token_s": None if first_us is None else (first_us - record.started_us) / 1e6,
            "held_s": record.held_us / 1e6,
            "version": record.spans[-1].label if record.spans else None,
            "stitch": record.stitch.value if record.stitch is not None else None,
            "error": record.error,
        }
        if self._log_prompts:
            fields |= {
                "request": record.request.decode(errors="replace"),
                "answer": record.answer.decode(errors="replace"),
            }
        return fields
