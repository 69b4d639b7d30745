"""Autotuning without a device: takes the first configuration that works, since none can be timed.

Configurations are tried in the candidate's own order, after its own pruning. The first whose launch does not raise is
taken, and kept for launches with the same key. On a GPU another one may be faster, but computes the same. The
interpreter also runs configurations that no device would; the judge sends how many of a kernel's to skip.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from triton.runtime.autotuner import Autotuner

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


def install(skipped_configs: Mapping[str, int] | None = None) -> None:
    """Replace `Autotuner.run`. `skipped_configs`: by kernel, how many configurations to skip."""
    numbers = skipped_configs or {}

    def run(tuner: Any, *args: Any, **kwargs: Any) -> Any:
        return run_first_that_works(tuner, numbers.get(tuner.base_fn.__name__, 0), args, kwargs)

    Autotuner.run = run
