"""Autotuning without a device: takes the first configuration that works, and records others beside it.

Configurations are tried in the candidate's own order, after its own pruning. Where nothing can be timed, the first
whose launch does not raise is taken, and kept for launches with the same key; the judge sends how many of a kernel's to
skip. Others are recorded for whoever plays the record: for a GPU each one, of which it takes the fastest
(`replay/device/tuning.py`); without one a sample, of which each has to give the right answer.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from typing import Any

from triton.runtime.autotuner import Autotuner

from weir.kernel_eval.ipc.trace import MOST_WAYS, Step
from weir.kernel_eval.worker.kernel_values import NeedsKernelResult
from weir.kernel_eval.worker.recorder import Recorder

MOST_SAMPLED = 16  # without a GPU
SAMPLE_S = 5.0  # in which those are compiled
_run = Autotuner.run


def run_first_that_works(tuner: Any, num_skipped: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Launch with the first configuration that works. Raises the last configuration's error if none does."""
    configs = tuner.configs
    tuner.nargs = dict(zip(tuner.arg_names, args, strict=False))
    pruned = tuner.prune_configs(kwargs) if len(configs) > 1 else configs
    pruned = pruned[min(num_skipped, len(pruned) - 1) :]
    try:
        for config in pruned[:-1]:
            tuner.configs = [config]
            try:
                return _run(tuner, *args, **kwargs)
            except NeedsKernelResult:
                raise
            except Exception:  # as on a GPU, where a configuration that does not compile is skipped
                continue
        tuner.configs = pruned[-1:]
        return _run(tuner, *args, **kwargs)
    finally:
        tuner.configs = configs


def run_each(
    tuner: Any,
    recorder: Recorder,
    num_skipped: int,
    sample: int | None,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """Launch with the first configuration that works, and record the launches with others beside it.

    `sample`: the seed by which some others are chosen; None for all. Raises the last configuration's error if none
    works.
    """
    configs = tuner.configs
    tuner.nargs = dict(zip(tuner.arg_names, args, strict=False))
    pruned = tuner.prune_configs(kwargs) if len(configs) > 1 else configs
    left = list(pruned[min(num_skipped, len(pruned) - 1) :])
    found: list[tuple[Any, list[Step]]] = []
    failed: Exception | None = None
    ends_at = float("inf")
    try:
        while left and len(found) < MOST_WAYS and time.monotonic() < ends_at:
            tuner.configs = [left.pop(0)]
            try:
                with recorder.aside() as steps:
                    _run(tuner, *args, **kwargs)
            except NeedsKernelResult:
                raise
            except Exception as error:  # as on a GPU, where a configuration that does not compile is skipped
                failed = error
                recorder.num_failed += 1
                continue
            found.append((tuner.configs[0], steps))
            if sample is not None and len(found) == 1:
                left = random.Random(sample).sample(left, min(len(left), MOST_SAMPLED - 1))
                ends_at = time.monotonic() + SAMPLE_S
        if not found and failed is not None:
            raise failed
        tuner.configs = [config for config, _ in found[:1]] or pruned
        result = _run(tuner, *args, **kwargs)
    finally:
        tuner.configs = configs
    recorder.add_alternatives([steps for _, steps in found])
    return result


def install(
    skipped_configs: Mapping[str, int] | None = None, recorder: Recorder | None = None, sample: int | None = None
) -> None:
    """Replace `Autotuner.run`. `skipped_configs`: by kernel, how many configurations to skip.

    `recorder`: record the launches of other configurations there, as `run_each` does.
    """
    numbers = skipped_configs or {}

    def run(tuner: Any, *args: Any, **kwargs: Any) -> Any:
        num_skipped = numbers.get(tuner.base_fn.__name__, 0)
        if recorder is not None:
            return run_each(tuner, recorder, num_skipped, sample, args, kwargs)
        return run_first_that_works(tuner, num_skipped, args, kwargs)

    Autotuner.run = run
