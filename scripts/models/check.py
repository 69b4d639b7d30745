"""`weir model check`: what a model folder holds, what it lacks, and the memory that it needs.

Weights are checked by their headers and nothing is loaded, so a folder of any size is checked in seconds.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

from weir.proxy.config import ProxyConfig
from weir.proxy.errors import BadRequest, SetupError
from weir.proxy.rendering.opening import open_rendering
from weir.proxy.rendering.tokenizer import ModelTokenizer
from weir.scripts.models.weight_files import UnreadableWeights, WeightFiles, read_weight_files
from weir.trainer.errors import TrainerUsageError
from weir.trainer.model.memory import TrainingPlan, serving_memory, training_memory
from weir.trainer.model.shape import ModelShape, read_shape

GIB = 2**30
SAMPLE = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}]


@dataclass(slots=True, kw_only=True)
class ModelReport:
    """What was found of a folder; `problems` stop Weir from using it, `remarks` do not."""

    folder: str
    shape: ModelShape | None = None
    weights: WeightFiles | None = None
    tokens: int | None = None  # pieces of the tokenizer
    renderer: str | None = None
    rendering: dict[str, str] = field(default_factory=dict)  # what it does with a conversation, by subject
    prompt: str | None = None  # a sample conversation as the renderer writes it
    problems: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    serving: list[dict[str, object]] = field(default_factory=list)
    training: list[dict[str, object]] = field(default_factory=list)

    def as_json(self) -> dict[str, object]:
        """All of it, as JSON values."""
        return asdict(self)


def check_model(folder: Path, proxy: ProxyConfig, *, tokens: int, batch_tokens: int) -> ModelReport:
    """Check a folder; memory is for a KV cache of `tokens` tokens and micro-batches of `batch_tokens` tokens."""
    report = ModelReport(folder=str(folder))
    try:
        report.shape = read_shape(folder)
    except TrainerUsageError as error:
        report.problems.append(str(error))
    try:
        report.weights = read_weight_files(folder)
    except UnreadableWeights as error:
        report.problems.append(f"weights: {error}")
    _check_tokenizer(folder, proxy, report)
    if report.shape is not None:
        _compare(report.shape, report)
        report.serving = [_serving(report.shape, dtype, tokens) for dtype in ("bfloat16", "float32")]
        report.training = list(_training(report.shape, batch_tokens))
    return report


def _check_tokenizer(folder: Path, proxy: ProxyConfig, report: ModelReport) -> None:
    try:
        tokenizer = ModelTokenizer(folder)
        report.tokens = tokenizer.num_tokens
        with _warnings(report.remarks):
            rendering = open_rendering(folder, folder.name, proxy)
        report.renderer, report.rendering = rendering.name, rendering.facts()
        report.prompt = tokenizer.decode(rendering.render(SAMPLE, None))
    except (SetupError, BadRequest) as error:
        report.problems.append(str(error))
        return
    if tokenizer.chat_template is None:
        report.remarks.append(
            "it has no chat template: the renderer's own form is used, and SGLang's chat API has none"
        )


def _compare(shape: ModelShape, report: ModelReport) -> None:
    """Whether weights and tokenizer belong to the configuration."""
    if report.weights is not None and report.weights.num_parameters < shape.num_parameters:
        report.problems.append(
            f"weights: the files hold {report.weights.num_parameters:,} parameters and config.json describes "
            f"{shape.num_parameters:,}: a file is missing, or config.json belongs to another model"
        )
    if report.tokens is not None and report.tokens > shape.vocabulary:
        report.problems.append(
            f"the tokenizer has {report.tokens} tokens and the model's vocabulary {shape.vocabulary}: they belong to "
            "different models"
        )


def _serving(shape: ModelShape, dtype: str, tokens: int) -> dict[str, object]:
    memory = serving_memory(shape, dtype=dtype, tokens=tokens)
    return {"dtype": dtype, **asdict(memory), "total": memory.total}


def _training(shape: ModelShape, batch_tokens: int) -> Iterator[dict[str, object]]:
    """One GPU with each precision and each way to save memory; more GPUs share all but the rounded copies."""
    precisions: tuple[Literal["float32"], Literal["bfloat16"]] = ("float32", "bfloat16")
    for precision in precisions:
        for saved in (False, True):
            plan = TrainingPlan(precision=precision, tokens=batch_tokens, checkpointing=saved, offload_optimizer=saved)
            memory = training_memory(shape, plan)
            optimizer = "AdamW, moments in CPU memory" if saved else "AdamW"
            yield {"optimizer": optimizer, "precision": precision, "checkpointing": saved, **memory.as_json()}


@contextmanager
def _warnings(into: list[str]) -> Iterator[None]:
    """Collect what the renderer's choice warns of, instead of printing it."""

    class Collector(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            into.append(record.getMessage())

    logger, collector = logging.getLogger("weir.proxy.rendering"), Collector(logging.WARNING)
    logger.addHandler(collector)
    propagates, logger.propagate = logger.propagate, False
    try:
        yield
    finally:
        logger.removeHandler(collector)
        logger.propagate = propagates


def report_lines(report: ModelReport) -> Iterator[str]:
    """The report for people."""
    shape, weights = report.shape, report.weights
    if shape is not None:
        active = "" if shape.num_active == shape.num_parameters else f", {shape.num_active / 1e9:.2f} B for a token"
        yield f"model         {shape.model_type}, {shape.num_parameters / 1e9:.3f} B parameters{active}"
        yield f"context       {shape.context or 'not named'} tokens; vocabulary {shape.vocabulary}"
    if weights is not None:
        size = f"{weights.num_bytes / GIB:.2f} GiB in {weights.num_files} files"
        yield f"weights       {size}, {weights.num_tensors} tensors, {', '.join(weights.dtypes)}"
    if report.tokens is not None:
        yield f"tokenizer     {report.tokens} tokens"
    yield from (f"{subject:<13} {fact}" for subject, fact in report.rendering.items())
    if report.prompt is not None:
        yield f"a prompt      {report.prompt!r}"
    if shape is not None:
        yield from _memory_lines(report)
    yield from (f"remark        {remark}" for remark in report.remarks)
    yield from (f"PROBLEM       {problem}" for problem in report.problems)


def _memory_lines(report: ModelReport) -> Iterator[str]:
    for row in report.serving:
        yield (
            f"serving       {row['dtype']}: weights {_gib(row['weights'])}, KV cache {row['kv_per_token']} bytes "
            f"a token, {_gib(row['total'])} with {row['tokens']} tokens"
        )
    for row in report.training:
        recomputed = ", activations recomputed" if row["checkpointing"] else ""
        yield (
            f"training      {row['optimizer']}, {row['precision']}{recomputed}: peak {_gib(row['peak'])} on one GPU "
            f"(weights {_gib(row['weights'])}, gradients {_gib(row['gradients'])}, moments {_gib(row['moments'])}, "
            f"activations {_gib(row['activations'])})"
        )


def _gib(num_bytes: object) -> str:
    assert isinstance(num_bytes, int)
    return f"{num_bytes / GIB:.2f} GiB"
