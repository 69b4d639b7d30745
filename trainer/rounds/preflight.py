"""What settings name outside of themselves, looked for before a round is claimed with them.

Invariant: a claimed round keeps its settings, so one whose functions, models or device are not there would stay open
until somebody brings them. Not here: what is wrong with settings by themselves (`config.py`, `combinations.py`).
"""

from __future__ import annotations

from pathlib import Path

from weir.trainer.errors import TrainerUsageError
from weir.trainer.hooks import load_hooks
from weir.trainer.import_path import import_function
from weir.trainer.settings.config import TrainerConfig


def check_settings(config: TrainerConfig) -> None:
    """Raise `TrainerUsageError` where a function, a model's folder or the device that is named is not there."""
    load_hooks(config.hooks)
    if config.backend != "torch":
        import_function(config.backend)
    for term in config.reward_terms.values():
        if term.function is not None:
            import_function(term.function)
    for name in ("reference_path", "critic_path"):
        folder = getattr(config, name)
        if folder is not None and not (Path(folder) / "config.json").exists():
            raise TrainerUsageError(f"trainer.{name} = {folder!r} is no Hugging Face folder: it has no config.json")
    if config.device == "cuda":
        from weir.trainer.model.token_model import choose_device

        choose_device(config.device)
