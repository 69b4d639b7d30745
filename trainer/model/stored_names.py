"""Which stored tensors hold a parameter: one of its own name, or one for each expert and projection.

transformers keeps the experts of a layer in one parameter, of shape (experts, rows, columns), and stores a matrix for
each of them, under the names of the family.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass

from weir.trainer.errors import TrainerUsageError


@dataclass(frozen=True, slots=True)
class Place:
    """A stored tensor: the whole parameter, or rows `start` to `stop` of one expert's matrix."""

    name: str
    expert: int | None = None
    start: int = 0
    stop: int = 0


# of a parameter: the stored projections, and how the path to them is called in the files
_EXPERTS: dict[str, list[tuple[tuple[str, ...], tuple[str, str]]]] = {
    "gate_up_proj": [(("gate_proj", "up_proj"), ("", "")), (("w1", "w3"), (".mlp.", ".block_sparse_moe."))],
    "down_proj": [(("down_proj",), ("", "")), (("w2",), (".mlp.", ".block_sparse_moe."))],
}


def places(name: str, shape: tuple[int, ...], stored: Container[str]) -> list[Place]:
    """The stored tensors of a parameter. Raises `TrainerUsageError` where there are none."""
    if name in stored:
        return [Place(name)]
    path, _, last = name.rpartition(".")
    for projections, renamed in _EXPERTS.get(last, ()):
        stem = path.replace(*renamed) if renamed[0] else path
        if f"{stem}.0.{projections[0]}.weight" in stored:
            height = shape[1] // len(projections)
            return [
                Place(f"{stem}.{expert}.{projection}.weight", expert, at * height, (at + 1) * height)
                for expert in range(shape[0])
                for at, projection in enumerate(projections)
            ]
    raise TrainerUsageError(
        f"the files hold no {name}, under this name or as experts: a file is missing, or the family stores its weights "
        "in another form than transformers holds them; train it with processes = 1"
    )
