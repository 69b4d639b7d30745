"""Preflight: checks that the functions, models and device named in the settings exist, before a round is claimed.

A claimed round keeps its settings, so one that lacks any of them would stay open until somebody provides it.
"""

from __future__ import annotations

from pathlib import Path

from weir.trainer.errors import TrainerUsageError
from weir.trainer.hooks import load_hooks
from weir.trainer.import_path import import_function
from weir.trainer.rewards.kernel import require_timing
from weir.trainer.settings.combinations import BUILT_IN
from weir.trainer.settings.config import TrainerConfig
from weir.trainer.versions.version_folder import versions_folder


def check_settings(config: TrainerConfig, parent: Path) -> None:
    """Raise `TrainerUsageError` where a named function, model folder or device does not exist.

    Also where the routing of the folder `parent` cannot be replayed, and where the judge cannot time the answers whose
    speed is rewarded; `JudgeUnavailable` where it does not say.
    """
    load_hooks(config.hooks)
    if config.backend not in BUILT_IN:
        import_function(config.backend)
    for term in config.reward_terms.values():
        if term.function is not None:
            import_function(term.function)
    for name in ("reference_path", "critic_path"):
        folder = getattr(config, name)
        if folder is not None and not (Path(folder) / "config.json").exists():
            raise TrainerUsageError(f"trainer.{name} = {folder!r} is not a Hugging Face folder: it has no config.json")
    if config.device == "cuda":
        from weir.trainer.model.token_model import choose_device

        choose_device(config.device)
    check_replay(config, parent)
    require_timing(config)


def check_lora_base(config: TrainerConfig, root: Path, model_path: Path) -> None:
    """Raise `TrainerUsageError` where LoRA's frozen weights lie in a folder that a later publish deletes."""
    if config.lora_rank is not None and model_path.resolve().is_relative_to(versions_folder(root).resolve()):
        raise TrainerUsageError(
            f"with lora_rank every round needs its first weights, and {model_path} is a version, which is deleted once "
            "keep_versions newer ones exist; copy that folder elsewhere, and set [model] path to the copy"
        )


def check_replay(config: TrainerConfig, folder: Path) -> None:
    """Raise `TrainerUsageError` where `routing_replay` is set for a model whose routing is not replayed."""
    if config.routing_replay:
        from transformers import AutoConfig

        from weir.trainer.model.routing_replay import RoutedShape

        RoutedShape.of(AutoConfig.from_pretrained(folder, local_files_only=True).get_text_config())
