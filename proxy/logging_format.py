"""The format of the proxy's own log, uvicorn's lines included: text or JSON lines.

A log record is a message with fields. Invariant: in JSON, each record is exactly one line of output.
"""

from __future__ import annotations

import functools
import logging
import time
from typing import Any, Literal

import msgspec

_encode = msgspec.json.Encoder(enc_hook=str).encode


class JsonLines(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": _iso(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return _encode(line).decode()


class TextLines(logging.Formatter):
    """Time, level, logger and message, then the fields that have a value."""

    def format(self, record: logging.LogRecord) -> str:
        line = f"{_iso(record.created)} {record.levelname} {record.name}: {record.getMessage()}"
        for name, value in getattr(record, "fields", {}).items():
            if value is not None:
                line += f" {name}={_shown(value)}"
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


def set_up(form: Literal["text", "json"], level: str) -> None:
    """Send every logger's records to stderr in this format."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines() if form == "json" else TextLines())
    logging.basicConfig(level=level.upper(), handlers=[handler])


def log_fields(logger: logging.Logger, level: int, message: str, fields: dict[str, Any]) -> None:
    """Log a message with fields, without looking up the calling frame, which costs more than the rest."""
    record = logging.LogRecord(logger.name, level, "", 0, message, None, None)
    record.fields = fields
    logger.handle(record)


def _iso(created: float) -> str:
    return f"{_second(int(created))}.{int(created % 1 * 1000):03d}Z"


@functools.lru_cache(4)
def _second(created_s: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(created_s))


def _shown(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.3f}"
    text = str(value)
    return text if text.isprintable() and " " not in text else _encode(text).decode()
