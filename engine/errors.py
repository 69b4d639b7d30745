"""Errors of the engine, named for the boundary that failed.

EngineError
├── BadRequest        a request that cannot be served: answered with 400
├── ModelError        a model folder that cannot be served at start (exit 2)
└── WeightsRefused    new weights that do not fit the served model; the old ones stay
"""

from __future__ import annotations


class EngineError(Exception):
    """Base of this part's errors; `exit_code` is the status that the command ends with."""

    exit_code = 1


class BadRequest(EngineError, ValueError):
    """The client's request cannot be served; it gets the message."""


class ModelError(EngineError, ValueError):
    """The model folder cannot be loaded; the message names the file or setting at fault."""

    exit_code = 2


class WeightsRefused(EngineError, ValueError):
    """The folder does not hold exactly the tensors of the served model."""
