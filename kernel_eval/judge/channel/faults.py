"""The exceptions that end an evaluation inside a judge."""

from __future__ import annotations

from typing import Any

from weir.kernel_eval.protocol import Fault
from weir.kernel_eval.reward import Stage


class FaultDetected(Exception):
    """The evaluation ends with this fault. `details` are added to those of the result."""

    def __init__(self, stage: Stage, fault: Fault, message: str, **details: Any) -> None:
        super().__init__(message)
        self.stage = stage
        self.fault = fault
        self.message = message
        self.details = details


def rule_broken(rule: str, observation: str) -> FaultDetected:
    """The fault of a candidate that broke a rule."""
    return FaultDetected(Stage.LOADED, Fault.REWARD_HACK, f"{rule}: {observation}", rule=rule)
