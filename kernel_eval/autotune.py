"""Autotuning without a device: configurations cannot be timed against each other, so that one is chosen.

Configurations are tried in the candidate's own order, after its own pruning; the first for which the launch does not
raise is taken, and kept for launches with the same key. On a GPU another one may be faster; it computes the same.
"""

from __future__ import annotations

from typing import Any

from triton.runtime.autotuner import Autotuner

_run = Autotuner.run


def run_first_that_works(tuner: Any, *args: Any, **kwargs: Any) -> Any:
    """In place of `Autotuner.run`. Raises what the last configuration raised, where none works."""
    configs = tuner.configs
    tuner.nargs = dict(zip(tuner.arg_names, args, strict=False))
    pruned = tuner.prune_configs(kwargs) if len(configs) > 1 else configs
    try:
        for config in pruned[:-1]:
            tuner.configs = [config]
            try:
                return _run(tuner, *args, **kwargs)
            except Exception:  # as on a GPU, where a configuration that does not compile is passed over
                continue
        tuner.configs = pruned[-1:]
        return _run(tuner, *args, **kwargs)
    finally:
        tuner.configs = configs


def install() -> None:
    """For a worker, once."""
    Autotuner.run = run_first_that_works
