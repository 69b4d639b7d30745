"""Which ways a task decides, and which of its inputs make it decide otherwise than usual ones do."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from weir.kernel_eval.tasks.answers import is_finite, num_floating
from weir.kernel_eval.tasks.changing import changing, each_tensor, is_drawn
from weir.kernel_eval.tasks.errors import InvalidReference, UnsupportedReference
from weir.kernel_eval.tasks.input_draws import redrawn, sums_to_one
from weir.kernel_eval.tasks.input_variants import Draw
from weir.kernel_eval.tasks.task_source import SET_BOUNDS, decides, names_in
from weir.kernel_eval.tasks.watches.decisions import Branch, Decisions, Outcome

if TYPE_CHECKING:
    from weir.kernel_eval.tasks.reference import Reference

_LOOKED_AT = (Draw.DECLARED, Draw.HARD)
_NUM_LOOKED_AT = 3  # draws of a kind, whose decisions are looked at
_CHANGES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "small": lambda value: value * 1e-3,
    "above zero": lambda value: value.abs() * 100,
    "below zero": lambda value: value.abs() * -100,
    "negated": torch.neg,
    "large": lambda value: value * 1e3,
    "zero": torch.zeros_like,  # last, since many answers to zeros are the same
}
_MOST_INPUTS = 3  # that are changed alone
_MOST_TURNS = 4
_NUM_TURNED = 3  # draws, all of which a change leads the same way


class Turn(NamedTuple):
    """A change of whole inputs, by name; `at` are those that are changed, by their number among the tensors."""

    at: tuple[int, ...]
    change: str


class Branches:
    """What one task decides; found out when it is first asked for."""

    def __init__(self, reference: Reference, source: str) -> None:
        self._reference = reference
        self._source = source
        self._decides_beyond: bool | None = None
        self._turns: list[Turn] | None = None

    def needs_huge(self, model: Any, inputs: list[Any]) -> bool:
        """Whether huge values belong to what a task asks for.

        They do if it sets bounds for one input, or if it decides something otherwise than for other values. Products of
        several huge inputs are beyond what kernels are made for.
        """
        if names_in(self._source) & SET_BOUNDS and num_floating(inputs) == 1:
            return True
        if self._decides_beyond is None:
            usual, beyond = (self._outcomes(model, draw) for draw in (Draw.HARD, Draw.BEYOND))
            self._decides_beyond = not beyond <= usual
        return self._decides_beyond

    def decides_otherwise(self, model: Any, than: Any) -> bool:
        """Whether a task that compares values decides for one model what it does not for another."""
        if not decides(self._source):
            return False
        one, two = (set.union(*(self._outcomes(m, draw) for draw in _LOOKED_AT)) for m in (model, than))
        return not one <= two

    def turns(self, model: Any) -> list[Turn]:
        """Changes of whole inputs after which the task takes a way that it does not always take for usual draws.

        For tasks that ask something of a single number, as of the norm of an input; each change leads another way.
        """
        if self._turns is None:
            self._turns = self._find_turns(model) if self._reference.watched(model).asks_one else []
        return self._turns

    def turned(self, inputs: list[Any], number: int) -> list[Any]:
        """Inputs that one of the changes found was made to, or the same where there is none of this number."""
        turns = self._turns or []
        return _turned(inputs, turns[number]) if number < len(turns) else inputs

    def _find_turns(self, model: Any) -> list[Turn]:
        own = [self._reference.inputs(number) for number in range(_NUM_TURNED)]
        floating = [at for at, value in enumerate(each_tensor(own[0])) if is_drawn(value) and not sums_to_one(value)]
        known = set[Branch | None]()
        for draw in _LOOKED_AT:
            draws = [redrawn(self._reference.inputs(number), draw) for number in range(_NUM_LOOKED_AT)]
            known |= set.intersection(*({self._branch(model, inputs)} for inputs in draws))
        groups = [*((at,) for at in floating[:_MOST_INPUTS]), *([tuple(floating)] if len(floating) > 1 else [])]
        found: list[Turn] = []
        for turn in (Turn(group, change) for group in groups for change in _CHANGES):
            branch = self._branch(model, _turned(own[0], turn))
            if branch is None or branch in known or len(found) == _MOST_TURNS:
                continue
            if all(self._branch(model, _turned(other, turn)) == branch for other in own[1:]):
                known.add(branch)
                found.append(turn)
        return found

    def _branch(self, model: Any, inputs: list[Any]) -> Branch | None:
        """The way that the task takes for some inputs; None where its answer cannot be compared."""
        with contextlib.suppress(InvalidReference, UnsupportedReference):
            self._reference.effects(model)  # found out once, by a call that decides, too
            with Decisions() as decisions:
                expected = self._reference.expected(model, inputs)
            branch: Branch = decisions.branch
            if is_finite(expected.outputs):
                return branch
        return None

    def _outcomes(self, model: Any, draw: Draw) -> set[Outcome]:
        """How the task decides for some draws of a kind; empty if they are not accepted."""
        outcomes: set[Outcome] = set()
        for number in range(_NUM_LOOKED_AT):
            with contextlib.suppress(InvalidReference, UnsupportedReference):
                self._reference.effects(model)  # found out once, by a call that decides for another draw
                with Decisions() as decisions:
                    self._reference.expected(model, redrawn(self._reference.inputs(number), draw))
                outcomes |= decisions.outcomes
        return outcomes


def _turned(inputs: list[Any], turn: Turn) -> list[Any]:
    def change(value: torch.Tensor) -> torch.Tensor:
        most = torch.finfo(value.dtype).max
        return _CHANGES[turn.change](value.double()).clamp(-most, most).to(value.dtype)

    for at in turn.at:
        inputs = changing(at, change)(inputs)
    return inputs
