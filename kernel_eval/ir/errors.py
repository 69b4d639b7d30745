"""The errors of Triton's intermediate representation (TTIR), read and run as data.

IrError
├── Malformed       the text, or the way it uses types, is no TTIR; `message` names the line
├── Unsupported     valid TTIR that this interpreter does not run; `name` says what: an operation, a type, `deadlock`
├── LimitExceeded   a limit of reading or running; `limit` names it
└── KernelFault     the kernel did what a device would not allow; `kind` says what

No message holds a value of a tensor, so that every message may be shown to whoever wrote the kernel.
"""

from __future__ import annotations

from typing import Literal

FaultKind = Literal["out_of_bounds", "misaligned", "read_only", "assertion"]


class IrError(Exception):
    """Base of the errors of this package."""


class Malformed(IrError):
    """The text is not TTIR, or its types contradict each other."""


class Unsupported(IrError):
    """The kernel needs something that cannot be interpreted here."""

    def __init__(self, name: str, message: str = "") -> None:
        super().__init__(f"{name} is not supported" + (f": {message}" if message else ""))
        self.name = name


class LimitExceeded(IrError):
    """A limit was exceeded; nothing is said about whether the kernel is right."""

    def __init__(self, limit: str, message: str) -> None:
        super().__init__(message)
        self.limit = limit


class KernelFault(IrError):
    """The kernel is at fault, whatever its result would be."""

    def __init__(self, kind: FaultKind, message: str) -> None:
        super().__init__(message)
        self.kind = kind
