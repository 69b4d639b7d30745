"""`weir init`: a commented weir.toml for a scenario and a model folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from weir.scripts.launch.errors import UsageError

if TYPE_CHECKING:
    from weir.scripts.models.scenario import Scenario

GIB = 2**30
ASSUMED_GIB, ASSUMED_GPUS = 79.0, 8  # a GPU with 80 GB, and a usual node


def init(
    scenario: Annotated[str, typer.Option(help="cpu, one-gpu, node or cluster.")],
    model: Annotated[Path, typer.Option(help="Hugging Face folder; its config.json is enough.")],
    out: Annotated[Path, typer.Option(help="The file to write; it may not exist yet.")] = Path("weir.toml"),
    gpus: Annotated[int | None, typer.Option(min=1, help="GPUs of this machine; default: those that it has.")] = None,
    device_gib: Annotated[
        float | None, typer.Option(min=0.1, help="Memory of a device; default: that of this machine's.")
    ] = None,
    first_port: Annotated[
        int | None,
        typer.Option(
            min=0, max=65535, help="First of the servers' ports, in a row; 0 chooses free ones; default: each its own."
        ),
    ] = None,
) -> None:
    """Write a commented weir.toml for a scenario and a model.

    Every value has its reason above it. Refused where the model does not fit; the message says what would.
    """
    from weir.scripts.launch.preflight import require_folder
    from weir.scripts.models.scenario import choose
    from weir.scripts.models.scenario_file import scenario_text, to_set

    kind = _scenario(scenario)
    require_folder(out.absolute())
    if out.exists():
        raise UsageError(f"{out} exists and is not overwritten: name another file with --out, or move it away")
    num, capacity = _machine(kind, gpus, device_gib)
    setup = choose(kind, model, gpus=num, capacity=capacity)
    with out.open("x", encoding="utf-8") as file:
        file.write(scenario_text(setup, file=str(out), first_port=_first_port(first_port, setup.engines)))
    typer.echo(f"{out}: scenario {kind}, {setup.shape.num_parameters / 1e9:.3f} B parameters")
    if (missing := to_set(setup)) is not None:
        typer.echo(f"set first    {missing}")
    typer.echo(f"then         weir up --check --config {out}; weir up --config {out}")


def _first_port(asked: int | None, num_engines: int) -> int | None:
    """The port that was asked for; of free ones for 0."""
    from weir.scripts.launch.port_row import USUAL_ROW, row_length
    from weir.scripts.launch.servers import free_ports_in_row

    return free_ports_in_row(row_length(num_engines), wanted=USUAL_ROW) if asked == 0 else asked


def _scenario(name: str) -> Scenario:
    for known in ("cpu", "one-gpu", "node", "cluster"):
        if name == known:
            return known
    raise UsageError(f"--scenario {name}: there is no such scenario; take cpu, one-gpu, node or cluster")


def _machine(scenario: Scenario, gpus: int | None, device_gib: float | None) -> tuple[int, int]:
    """GPUs and bytes of a device: those given, else this machine's, else assumed ones, which is said."""
    from weir.scripts.launch.placement import num_gpus
    from weir.trainer.rounds.fit import device_bytes

    cpu = scenario == "cpu"
    capacity = int(device_gib * GIB) if device_gib is not None else device_bytes("cpu" if cpu else "cuda")
    num = gpus or num_gpus() or 0
    if capacity is None:
        typer.echo(f"no GPU here: values are for {ASSUMED_GIB:g} GiB a GPU; --device-gib names another size", err=True)
        capacity = int(ASSUMED_GIB * GIB)
    if not num and not cpu:
        num = 1 if scenario == "one-gpu" else ASSUMED_GPUS
        if scenario != "one-gpu":
            typer.echo(f"no GPU here: values are for {num} GPUs; --gpus names another number", err=True)
    return num, capacity
