"""`weir bench scale`: what training on several ranks costs beside one process that has all cores.

Ranks and the one process alternate, step by step, on the same samples; every figure is a ratio of that run. Their
losses must agree, or the benchmark fails. Under load threads that wait for each other lose more than ranks do:
`…_cpu_over_one` compares the processor time of one process on one thread, which is what perfect threads would need,
with that of all ranks. Memory of a rank is compared with the arithmetic of `weir round --plan`, writing a checkpoint
with writing as many bytes, and what a rank reads to resume with what it owns. Of a mixture of experts, a step that
replays its routers' choices is compared with one whose routers choose. Megatron-core is measured where it is
installed and a file is named that lets it run on CPUs.
"""

from __future__ import annotations

import importlib.util
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from weir.scripts.bench.figures import print_figures
from weir.scripts.bench.scale.requests import Open, Opened, OpenMegatron, Save, Step, Taken, WriteBytes
from weir.scripts.bench.scale.workload import Work, samples_of, with_experts, write_model
from weir.scripts.launch.errors import CommandError, UsageError
from weir.trainer.credit.samples import Sample
from weir.trainer.launch.pool import RankPool
from weir.trainer.model.memory import FLOAT32, MOMENTS, training_memory
from weir.trainer.model.routing_replay import REPLAYED
from weir.trainer.model.shape import ModelShape, read_shape
from weir.trainer.rounds.fit import training_plan
from weir.trainer.settings.config import TrainerConfig
from weir.trainer.settings.launch import LaunchConfig
from weir.trainer.settings.megatron import MegatronSettings

CORES = 2  # of the one process, and ranks beside it
TOLERANCE = 1e-3  # of losses, relative
LAYOUTS = {"megatron_dp2": MegatronSettings(), "megatron_tp2": MegatronSettings(tensor=2)}


def main(
    names: list[str], model: Path | None, work: Work, rounds: int, shims: Path | None, *, only_json: bool = False
) -> None:
    """Measure each model; prints a line for each figure, unless `only_json`, then one JSON object.

    Raises UsageError where `model` is no model folder.
    """
    if model is not None and not (model / "config.json").exists():
        raise UsageError(f"{model} is no Hugging Face folder: it has no config.json")
    figures: dict[str, Any] = {"ranks": CORES, "tokens": work.tokens, "rounds": rounds}
    with tempfile.TemporaryDirectory(prefix="weir-bench-scale-") as name:
        for which in ["model"] if model is not None else names:
            folder = model or Path(name) / which
            if model is None:
                write_model(which, folder)
            measured = measure(folder.absolute(), Path(name), work, rounds, shims)
            figures |= {f"{which}_{key}": value for key, value in measured.items()}
            if not only_json:
                for key, value in measured.items():
                    print(f"{which}: {key} {value}", flush=True)
    print_figures(figures | {"load": round(os.getloadavg()[0], 1)})


def measure(folder: Path, scratch: Path, work: Work, rounds: int, shims: Path | None) -> dict[str, float]:
    """All figures of one model."""
    shape = read_shape(folder)
    samples = samples_of(work, shape.vocabulary)
    one, config = (_config(work, processes=processes) for processes in (1, CORES))
    saved = scratch / f"{folder.name}-saved"
    with _pool(1) as alone:
        alone.call(Open(folder=folder, config=one))
        with _pool(CORES) as ranks:
            ranks.call(Open(folder=folder, config=config))
            found = _alternate(alone, ranks, samples, rounds)
            figures = {
                "one_tok_s": work.tokens / found.one_s,
                "one_peak_over_plan": found.one_peak / _planned(shape, one),
            }
            if shape.model_type in REPLAYED:
                figures["replay_cpu_over_own"] = _replayed(alone, folder, one, samples, rounds)
            figures |= found.figures("torch", work)
            figures["torch_peak_over_plan"] = found.ranks_peak / _planned(shape, config)
            figures |= _written(ranks, saved, rounds)
        with _pool(CORES) as again:
            figures |= resumed(again.call(Open(folder=saved, config=config)))
        if shims is not None:
            figures |= _megatron(alone, folder, work, samples, rounds, shims)
    return {name: round(value, 3) for name, value in figures.items()}


def _replayed(alone: RankPool, folder: Path, config: TrainerConfig, samples: list[Sample], rounds: int) -> float:
    """Processor time of a step whose routers choose, over that of one that replays the same choices."""
    chosen = with_experts(folder, samples)
    with _pool(1) as replaying:
        replaying.call(Open(folder=folder, config=config.model_copy(update={"routing_replay": True})))
        return _alternate(alone, replaying, chosen, rounds).cpu_ratio


def resumed(opened: list[Opened]) -> dict[str, float]:
    """What ranks read, over what they own: weights in float32 and two moments of each."""
    own = [FLOAT32 * (1 + MOMENTS) * one.numbers for one in opened]
    read = [one.rows_read + one.rest_read for one in opened]
    return {
        "resume_read_over_own": max(a / b for a, b in zip(read, own, strict=True)),
        "resume_read_over_whole": max(read) / sum(own),
        "resume_read_mb": max(read) / 1e6,
    }


def _megatron(
    alone: RankPool, folder: Path, work: Work, samples: list[Sample], rounds: int, shims: Path
) -> dict[str, float]:
    """Megatron-core's layouts beside the one process; the layouts of tensors where heads can be divided."""
    if importlib.util.find_spec("megatron") is None:
        raise UsageError("megatron-core is not installed: install the extra `megatron`, or leave out --megatron-shims")
    from weir.trainer.errors import TrainerUsageError
    from weir.trainer.megatron.architecture import check_layout, read_architecture

    figures: dict[str, float] = {}
    for name, layout in LAYOUTS.items():
        try:
            check_layout(read_architecture(folder), layout, folder)
        except TrainerUsageError as error:
            print(f"{name} is left out: {error}", flush=True)
            continue
        with _pool(CORES) as ranks:
            config = _config(work, processes=CORES)
            ranks.call(OpenMegatron(folder=folder, config=config, layout=layout, shims=shims.absolute()))
            found = _alternate(alone, ranks, samples, rounds)
            planned = _planned(
                read_shape(folder), config.model_copy(update={"backend": "megatron", "megatron": layout})
            )
            figures |= found.figures(name, work) | {f"{name}_peak_over_plan": found.ranks_peak / planned}
    return figures


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternated:
    """Medians of the steps of both sides: seconds, their ratio pair by pair, and the most memory."""

    one_s: float
    ranks_s: float
    ratio: float
    cpu_ratio: float  # of the processor time of one process on one thread, over that of all ranks
    one_peak: int
    ranks_peak: int

    def figures(self, name: str, work: Work) -> dict[str, float]:
        """The figures of the ranks."""
        rate = work.tokens / self.ranks_s
        return {f"{name}_tok_s": rate, f"{name}_over_one": self.ratio, f"{name}_cpu_over_one": self.cpu_ratio}


def _alternate(alone: RankPool, ranks: RankPool, samples: list[Sample], rounds: int) -> Alternated:
    """Steps of one process on all cores, of the same on one thread, and of the ranks, in turns."""
    whole, single = Step(samples=samples, threads=CORES), Step(samples=samples, threads=1)
    taken: list[tuple[Taken, Taken, Taken]] = []
    for _ in range(rounds + 1):
        taken.append((alone.call(whole), alone.call(single), ranks.call(single)))
    own, theirs = taken[0][0].loss, taken[0][2].loss
    if abs(own - theirs) > TOLERANCE * max(1.0, abs(own)):
        raise CommandError(f"the losses differ, {own} and {theirs}: there is nothing to compare")
    timed = taken[1:]  # the first is the warm-up
    return Alternated(
        one_s=statistics.median(one.seconds for one, _, _ in timed),
        ranks_s=statistics.median(both.seconds for _, _, both in timed),
        ratio=statistics.median(one.seconds / both.seconds for one, _, both in timed),
        cpu_ratio=statistics.median(single.cpu_seconds / both.cpu_seconds for _, single, both in timed),
        one_peak=max(one.peak_bytes for of_turn in taken for one in of_turn[:2]),
        ranks_peak=max(both.peak_bytes for _, _, both in taken),
    )


def _written(ranks: RankPool, folder: Path, rounds: int) -> dict[str, float]:
    """Rate of a checkpoint, written by all ranks and synced, over that of as many bytes; the last one stays.

    The bytes are written before and after each checkpoint. How much the slowest took of the fastest's time says how
    far the disk itself can be relied on.
    """
    folder.mkdir()
    ranks.call(Save(folder=folder))
    size = sum(file.stat().st_size for file in folder.iterdir())
    bare, own = [_bare(ranks, folder.parent, size)], list[float]()
    for _ in range(rounds):
        for file in folder.iterdir():
            file.unlink()
        own.append(_seconds(ranks, Save(folder=folder), folder))
        bare.append(_bare(ranks, folder.parent, size))
    beside = map(statistics.mean, pairwise(bare))
    return {
        "checkpoint_mb": size / 1e6,
        "checkpoint_mb_s": size / statistics.median(own) / 1e6,
        "checkpoint_over_disk": statistics.median(bytes_s / own_s for bytes_s, own_s in zip(beside, own, strict=True)),
        "disk_spread": max(bare) / min(bare),
    }


def _bare(ranks: RankPool, parent: Path, size: int) -> float:
    """Time for as many bytes, which go afterwards."""
    with tempfile.TemporaryDirectory(dir=parent) as name:
        return _seconds(ranks, WriteBytes(folder=Path(name), num_bytes=size), Path(name))


def _seconds(ranks: RankPool, request: Save | WriteBytes, folder: Path) -> float:
    """Time until what the ranks write is on the disk."""
    os.sync()
    started = time.perf_counter()
    ranks.call(request)
    for file in folder.iterdir():
        with file.open("rb") as written:
            os.fsync(written.fileno())
    return time.perf_counter() - started


def _planned(shape: ModelShape, config: TrainerConfig) -> int:
    return training_memory(shape, training_plan(config)).peak


def _config(work: Work, *, processes: int) -> TrainerConfig:
    return TrainerConfig(
        device="cpu",
        processes=processes,
        torch_threads=CORES // processes,
        token_budget=work.budget,
        share_prefixes=False,
        lr=1e-12,  # the weights stay, and with them the loss
    )


@contextmanager
def _pool(processes: int) -> Iterator[RankPool]:
    with closing(RankPool(processes, "cpu", LaunchConfig(), resumed="the benchmark ends")) as pool:
        yield pool
