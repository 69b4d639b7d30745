"""`weir bench trainer --gpu`: what the torch backend makes of one GPU, on random models of Qwen3's published forms.

Each model takes optimiser steps in bfloat16 over micro-batches of 8,192 packed tokens. `mfu` counts 6 operations per
parameter and computed token, as a round's metric does, and 4 for a frozen parameter, which has no gradient of its own;
`mfu_attention` adds those of attention's scores. Both are shares of `--peak-tflops`, the dense peak of the device in
bfloat16. `matmul_tflops` is what a product of two square matrices of 8,192 reaches in the same run. `backward_mfu`
leaves the optimiser's step out. `tree_…` compares samples that share a prompt, computed once and computed apart.
`peak_gb` is what torch's allocator had reserved at most, beside the plan's arithmetic, which counts no LoRA.

The cases `…_cpu_adam` keep weights, gradients and moments in CPU memory, as one rank over NCCL and gloo. `host_gb` is
what the plan counts there; where not so much is free (`--host-gb`), the pass is measured, and no step is taken.
"""

from __future__ import annotations

import gc
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch
import torch.distributed as dist

from weir.scripts.bench.figures import print_figures
from weir.scripts.bench.random_samples import random_ids, random_sample
from weir.scripts.launch.errors import UsageError
from weir.trainer.credit.samples import Sample
from weir.trainer.learner.distributed import Ranks
from weir.trainer.learner.learner import Learner
from weir.trainer.model.batching import lay_out, micro_batches
from weir.trainer.model.memory import TrainingMemory, training_memory
from weir.trainer.model.shape import read_shape
from weir.trainer.rounds.fit import training_plan
from weir.trainer.settings.config import TrainerConfig

TOKENS = 8192  # of a micro-batch
MATRIX = 8192  # rows and columns of the product that gives the reachable peak
VOCABULARY = 151_936
HOST_SHARE = 0.95  # of the free memory of the machine: the rest is this process's own


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """Sizes of one of Qwen3's dense models, from its published config.json."""

    width: int
    inner: int
    layers: int
    heads: int
    tied: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A model, the settings that are measured with it, and the samples of a step."""

    form: str
    settings: Mapping[str, Any]
    micro_batches: int = 4
    length: int = 1024  # tokens of a sample
    trees: bool = True  # whether samples with a common prompt are measured too


FORMS = {
    "0.6b": Form(width=1024, inner=3072, layers=28, heads=16, tied=True),
    "1.7b": Form(width=2048, inner=6144, layers=28, heads=16, tied=True),
    "4b": Form(width=2560, inner=9728, layers=36, heads=32, tied=True),
    "8b": Form(width=4096, inner=12288, layers=36, heads=32, tied=False),
}
CASES = {
    "0.6b": Case(form="0.6b", settings={}),
    "0.6b_compiled": Case(form="0.6b", settings={"compile_layers": True}),
    "0.6b_long": Case(form="0.6b", settings={}, length=TOKENS),
    "1.7b": Case(form="1.7b", settings={}),
    "1.7b_compiled": Case(form="1.7b", settings={"compile_layers": True}),
    "1.7b_recomputed": Case(form="1.7b", settings={"gradient_checkpointing": True}),
    "8b_lora": Case(form="8b", settings={"lora_rank": 16, "gradient_checkpointing": True}, micro_batches=2),
    "4b_cpu_adam": Case(
        form="4b", settings={"offload_weights": True, "gradient_checkpointing": True}, micro_batches=2, trees=False
    ),
    "8b_cpu_adam": Case(
        form="8b", settings={"offload_weights": True, "gradient_checkpointing": True}, micro_batches=2, trees=False
    ),
}


def main(names: list[str], peak_tflops: float, steps: int, host_gb: float | None = None) -> None:
    """Measure each case of `CASES`; prints a line for each figure, then one JSON object.

    `host_gb` is the CPU memory that may be used; None: what is free.

    Raises UsageError without a GPU, and for a name that is no case.
    """
    if not torch.cuda.is_available():
        raise UsageError(
            f"torch {torch.__version__} finds no GPU: run this on a machine with one and torch's CUDA build"
        )
    if unknown := sorted(set(names) - CASES.keys()):
        raise UsageError(f"no case is named {', '.join(unknown)}: there are {', '.join(CASES)}")
    figures: dict[str, Any] = {
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "peak_tflops": peak_tflops,
        "matmul_tflops": round(matmul_tflops(), 1),
    }
    print(f"matmul: {figures['matmul_tflops']} TFLOPS", flush=True)
    with tempfile.TemporaryDirectory(prefix="weir-bench-gpu-") as name:
        folder = Path(name)
        for which in names or list(CASES):
            case = CASES[which]
            if not (folder / case.form).exists():
                write_form(FORMS[case.form], folder / case.form)
            free = psutil.virtual_memory().available if host_gb is None else int(host_gb * 1e9)
            found = measure(folder / case.form, case, peak_tflops, steps, free)
            _free()
            for key, value in found.items():
                figures[f"{which}_{key}"] = round(value, 3)
                print(f"{which}: {key} {value:.3f}", flush=True)
    print_figures(figures)


def model_config(form: Form) -> Any:
    """The model's configuration, as transformers has it."""
    from transformers import Qwen3Config

    return Qwen3Config(
        vocab_size=VOCABULARY,
        hidden_size=form.width,
        intermediate_size=form.inner,
        num_hidden_layers=form.layers,
        num_attention_heads=form.heads,
        num_key_value_heads=8,
        head_dim=128,
        max_position_embeddings=40_960,
        tie_word_embeddings=form.tied,
        dtype="bfloat16",
    )


def write_form(form: Form, folder: Path) -> None:
    """Write a random model in bfloat16, made on the GPU."""
    from transformers import Qwen3ForCausalLM

    torch.manual_seed(0)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device("cuda"):
            Qwen3ForCausalLM(model_config(form)).save_pretrained(folder)
    finally:
        torch.set_default_dtype(before)
    _free()


def measure(folder: Path, case: Case, peak_tflops: float, steps: int, host_bytes: int) -> dict[str, float]:
    """The figures of one case; the first step is the warm-up. `host_bytes` of CPU memory may be used."""
    config = config_of(case)
    memory = training_memory(read_shape(folder), training_plan(config))
    torch.cuda.reset_peak_memory_stats()
    with ranks_of(config) as ranks:
        learner = Learner(folder, config, ranks=ranks)
        parameters = learner.num_parameters
        trained = sum(parameter.numel() for parameter in learner.model.parameters() if parameter.requires_grad)
        operations = 4 * parameters + 2 * trained
        samples = flat_samples(case)
        tokens = sum(len(sample.ids) for sample in samples)
        peak_operations = peak_tflops * 1e12
        form = FORMS[case.form]
        scores = 6 * form.layers * form.heads * 128 * case.length  # causal: half of two products, and twice backward
        figures = {"parameters_b": parameters / 1e9}
        if config.offload_weights:
            figures["host_gb"] = memory.host / 1e9
        if takes_steps(memory, host_bytes):
            whole = _seconds(lambda: learner.train(samples, fresh_version=0, seed=0), steps)
            figures |= {
                "tok_s": tokens / whole,
                "mfu": operations * tokens / whole / peak_operations,
                "mfu_attention": (operations + scores) * tokens / whole / peak_operations,
            }
        else:
            learner.score(samples)
        backward = _seconds(lambda: learner.accumulate(samples, fresh_version=0), steps, before=learner.stepper.clear)
        peak = torch.cuda.max_memory_reserved()
        figures |= {"backward_mfu": operations * tokens / backward / peak_operations, "peak_gb": peak / 1e9}
        if config.lora_rank is None:
            figures["peak_over_plan"] = peak / memory.peak
        return figures | (_tree(learner, steps) if case.trees else {})


def config_of(case: Case) -> TrainerConfig:
    """The settings that a case is measured with."""
    return TrainerConfig(
        device="cuda",
        precision="bfloat16",
        token_budget=TOKENS,
        lr=1e-12,
        share_prefixes=False,
        torch_threads=os.cpu_count() or 1,
        **case.settings,
    )


def takes_steps(memory: TrainingMemory, host_bytes: int) -> bool:
    """Whether so much CPU memory holds what an optimiser's step needs there."""
    return memory.host <= HOST_SHARE * host_bytes


@contextmanager
def ranks_of(config: TrainerConfig) -> Iterator[Ranks]:
    """One process's ranks: where weights are in CPU memory, a group of one, over NCCL and gloo."""
    if not config.offload_weights:
        yield Ranks()
        return
    device = torch.device(config.device)
    with tempfile.TemporaryDirectory(prefix="weir-bench-gpu-") as folder:
        if device.type == "cuda":
            torch.cuda.set_device(0)
        backend = "nccl" if device.type == "cuda" else "gloo"
        dist.init_process_group(backend, init_method=f"file://{folder}/group", rank=0, world_size=1)
        try:
            yield Ranks().dividing(device, replicas=1, offloads=True)
        finally:
            dist.destroy_process_group()


def _tree(learner: Learner, steps: int) -> dict[str, float]:
    """Groups of samples with a common prompt, computed as trees and apart."""
    samples = tree_samples()
    seconds, computed = [], []
    for shared in (False, True):
        learner.layout = layout = learner.model.layout(share_prefixes=shared)
        parts = micro_batches(samples, TOKENS, layout)
        computed.append(sum(lay_out(part, layout, torch.device("cpu")).num_tokens for part in parts))
        learner.score(samples)
        seconds.append(
            _seconds(lambda: learner.accumulate(samples, fresh_version=0), steps, before=learner.stepper.clear)
        )
    ratio = computed[0] / computed[1]
    return {
        "tree_ratio": ratio,
        "tree_over_flat": seconds[0] / seconds[1],
        "tree_share": seconds[0] / seconds[1] / ratio,
    }


def flat_samples(case: Case) -> list[Sample]:
    """Samples without common prefixes that fill the micro-batches, half prompt and half answer."""
    random = np.random.default_rng(0)
    half = case.length // 2
    ids = [random_ids(random, case.length, VOCABULARY) for _ in range(case.micro_batches * TOKENS // case.length)]
    return [random_sample(at, own[:half], own[half:], random, VOCABULARY) for at, own in enumerate(ids)]


def tree_samples() -> list[Sample]:
    """Sixteen answers of 512 tokens in two groups, whose prompts have 1,536 tokens."""
    random = np.random.default_rng(1)
    prompts = [random_ids(random, 1536, VOCABULARY) for _ in range(2)]
    return [
        random_sample(index, prompts[index // 8], random_ids(random, 512, VOCABULARY), random, VOCABULARY)
        for index in range(16)
    ]


def matmul_tflops() -> float:
    """10^12 operations per second of a product of two random matrices in bfloat16."""
    left, right = (torch.randn(MATRIX, MATRIX, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    return 2 * MATRIX**3 / _seconds(lambda: left @ right, 10) / 1e12


def _seconds(call: Callable[[], object], times: int, before: Callable[[], object] = lambda: None) -> float:
    """Median seconds of a call, after one that is not counted."""
    taken = []
    for _ in range(times + 1):
        before()
        torch.cuda.synchronize()
        started = time.perf_counter()
        call()
        torch.cuda.synchronize()
        taken.append(time.perf_counter() - started)
    return statistics.median(taken[1:])


def _free() -> None:
    gc.collect()
    torch.cuda.empty_cache()
