"""Autotuning without a device: takes the first configuration that works, or records each for a device to choose.

Configurations are tried in the candidate's own order, after its own pruning. Where nothing can be timed, the first
whose launch does not raise is taken, and kept for launches with the same key; the judge sends how many of a kernel's to
skip. For a GPU each one is recorded, and the process that plays the record there takes the fastest
(`replay/device/tuning.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from triton.runtime.autotuner import Autotuner

from weir.kernel_eval.ipc.trace import Step
from weir.kernel_eval.worker.kernel_values import NeedsKernelResult
from weir.kernel_eval.worker.recorder import Recorder

MOST_CONFIGS = 64  # of one launch
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
            except Exception:  # as on a GPU, where a configuration that does not compile is skipped
                continue
        tuner.configs = pruned[-1:]
        return _run(tuner, *args, **kwargs)
    finally:
        tuner.configs = configs


def run_each(tuner: Any, recorder: Recorder, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Launch with the first configuration that works, and record the launches with the others beside it.

    Raises the last configuration's error if none works.
    """
    configs = tuner.configs
    tuner.nargs = dict(zip(tuner.arg_names, args, strict=False))
    pruned = tuner.prune_configs(kwargs) if len(configs) > 1 else configs
    found: list[tuple[Any, list[Step]]] = []
    failed: Exception | None = None
    try:
        for config in pruned[:MOST_CONFIGS]:
            tuner.configs = [config]
            try:
                with recorder.aside() as steps:
                    _run(tuner, *args, **kwargs)
            except NeedsKernelResult:
                raise
            except Exception as error:  # as on a GPU, where a configuration that does not compile is skipped
                failed = error
            else:
                found.append((config, steps))
        if not found and failed is not None:
            raise failed
        tuner.configs = [config for config, _ in found[:1]] or pruned
        result = _run(tuner, *args, **kwargs)
    finally:
        tuner.configs = configs
    recorder.add_alternatives([steps for _, steps in found])
    return result


def install(skipped_configs: Mapping[str, int] | None = None, recorder: Recorder | None = None) -> None:
    """Replace `Autotuner.run`. `skipped_configs`: by kernel, how many configurations to skip.

    `recorder`: record the launches of all configurations there.
    """
    numbers = skipped_configs or {}

    def run(tuner: Any, *args: Any, **kwargs: Any) -> Any:
        if recorder is not None:
            return run_each(tuner, recorder, args, kwargs)
        return run_first_that_works(tuner, numbers.get(tuner.base_fn.__name__, 0), args, kwargs)

    Autotuner.run = run
