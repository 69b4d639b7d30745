"""The tables of docs/scale.md: layouts of published models, their memory and what a step sends.

`python -m weir.scripts.models.scale_table` prints them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from weir.trainer.model.layouts import LayoutPlan, LayoutWork
from weir.trainer.model.parts import read_parts
from weir.trainer.model.shape import read_shape
from weir.trainer.settings.megatron import MegatronSettings

CONFIGS = Path(__file__).parents[2] / "recipes" / "configs"
DEVICE_BYTES = 79 << 30  # what a GPU of 80 GB gives a process
STEP_TOKENS = 1 << 22
GB = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A model on so many GPUs."""

    model: str
    gpus: int
    layout: MegatronSettings
    tokens: int  # of a micro-batch
    on_host: bool = False


ROWS = (
    Row(model="Qwen3-8B", gpus=1, layout=MegatronSettings(), tokens=16384, on_host=True),
    Row(model="Qwen3-8B", gpus=8, layout=MegatronSettings(tensor=2), tokens=32768),
    Row(model="Qwen3-8B", gpus=64, layout=MegatronSettings(tensor=2, context=4), tokens=131072),
    Row(model="Qwen3-30B-A3B", gpus=8, layout=MegatronSettings(tensor=2, expert=8), tokens=32768, on_host=True),
    Row(model="GLM-4.5-Air", gpus=64, layout=MegatronSettings(tensor=4, pipeline=2, expert=16), tokens=32768),
    Row(model="DeepSeek-V3", gpus=512, layout=MegatronSettings(tensor=4, pipeline=8, expert=32), tokens=16384),
)


def plan_of(row: Row, configs: Path = CONFIGS) -> LayoutPlan:
    """The plan of a row."""
    folder = configs / row.model
    work = LayoutWork(tokens=row.tokens, step_tokens=STEP_TOKENS, state_on_host=row.on_host)
    return LayoutPlan(
        shape=read_shape(folder), parts=read_parts(folder), layout=row.layout, processes=row.gpus, work=work
    )


def memory_lines(plans: list[tuple[Row, LayoutPlan]]) -> Iterator[str]:
    """The table of memory, in GB of the fullest rank."""
    yield (
        "| model | GPUs | layout | micro-batch | weights | gradients | master copy, moments | activations | logits "
        "| peak |"
    )
    yield "|---|---|---|---|---|---|---|---|---|---|"
    for row, plan in plans:
        memory = plan.memory()
        state = f"{memory.host / GB:.1f} (CPU)" if row.on_host else f"{memory.state / GB:.1f}"
        parts = [memory.weights, memory.gradients]
        cells = [f"{value / GB:.1f}" for value in parts]
        cells += [state, *(f"{value / GB:.1f}" for value in (memory.activations, memory.logits, memory.peak))]
        yield f"| {row.model} | {row.gpus} | {layout_words(plan)} | {row.tokens:,} | {' | '.join(cells)} |"


def traffic_lines(plans: list[tuple[Row, LayoutPlan]]) -> Iterator[str]:
    """The table of what a rank sends in a step, in GB."""
    yield "| model | GPUs | micro-batches | tensors | tokens | stages | experts | data parallel | together |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for row, plan in plans:
        traffic = plan.traffic()
        parts = (traffic.tensor, traffic.context, traffic.pipeline, traffic.expert, traffic.data, traffic.total)
        cells = " | ".join(f"{value / GB:.1f}" for value in parts)
        yield f"| {row.model} | {row.gpus} | {plan.micro_batches} | {cells} |"


def layout_words(plan: LayoutPlan) -> str:
    """A layout in the field's letters."""
    layout = plan.layout
    named = (("TP", layout.tensor), ("PP", layout.pipeline), ("CP", layout.context), ("EP", layout.expert))
    return " ".join(f"{name}{count}" for name, count in (*named, ("DP", plan.data)) if count > 1) or "one rank"


def main() -> None:
    """Print both tables."""
    plans = [(row, plan_of(row)) for row in ROWS]
    print("\n".join([*memory_lines(plans), "", *traffic_lines(plans)]))


if __name__ == "__main__":
    main()
