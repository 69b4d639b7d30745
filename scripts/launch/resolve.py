"""Values that commands derive from several sections of weir.toml: addresses, keys, the first weights, the renderer.

Commands, the demo and benchmarks share them without importing each other.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from weir.scripts.launch.errors import UsageError
from weir.scripts.launch.settings import Settings

if TYPE_CHECKING:
    from weir.agents.config import AgentsConfig
    from weir.trainer.data.chat_rows import ChatRenderer
    from weir.trainer.settings.config import TrainerConfig


def chat_renderer(model: Path, settings: Settings) -> ChatRenderer:
    """What renders as the proxy does with this model folder, so that training rows equal sampled calls."""
    from weir.proxy.rendering.opening import open_rendering
    from weir.scripts.launch.chat_rendering import ProxyRenderer

    return ProxyRenderer(open_rendering(model, settings.model.name, settings.proxy))


def trainer_config(settings: Settings) -> TrainerConfig:
    """`[trainer]`, with the addresses and keys of this machine's servers where it sets none."""
    judge, router = settings.kernel_eval, settings.router
    addresses: dict[str, object] = {
        "proxy_urls": [f"http://{settings.proxy.host}:{settings.proxy.port}"],
        "router_url": settings.proxy.upstream_url or f"http://{router.host}:{router.port}",
        "control_key": settings.proxy.control_key,
        "kernel_eval_url": judge.base_url,
        "kernel_eval_key": judge.api_key,
    }
    unset = {name: value for name, value in addresses.items() if name not in settings.trainer.model_fields_set}
    unset["publish"] = settings.publish
    unset["takes_turns"] = settings.placement.takes_turns
    if "engine_urls" not in settings.trainer.model_fields_set:
        from weir.scripts.launch.engine_discovery import publishing_urls

        urls = unset["engine_urls"] = publishing_urls(settings)
        if urls == [settings.proxy.upstream_url] and "router_url" in unset:
            unset["router_url"] = None  # the upstream is the engine itself
    return settings.trainer.model_copy(update=unset)


def see_training_gpus(settings: Settings) -> None:
    """Let this process see the GPUs of `[placement] train` only, before torch looks. Raises UsageError."""
    from weir.scripts.launch.placement import check_placement, num_gpus, visible

    if settings.placement.train is not None:
        there = num_gpus()
        check_placement(settings.placement, 0, there)
        os.environ.update(visible(settings.placement.train, there))


def first_weights(settings: Settings, model: Path | None) -> Path:
    """The given model folder, or that of the settings. Raises UsageError where there is none."""
    folder = model or settings.model.path
    if folder is None:
        raise UsageError("no model: give --model DIR, or set [model] path in weir.toml, to a Hugging Face folder")
    if not (folder / "config.json").exists():
        raise UsageError(f"{folder} is not a Hugging Face model folder: it has no config.json")
    return folder


def agents_config(settings: Settings, changes: dict[str, object]) -> AgentsConfig:
    """`[agents]` with the given changes, and with addresses and keys of the other sections as defaults."""
    from weir.agents.config import AgentsConfig

    proxy, judge = settings.proxy, settings.kernel_eval
    defaults: dict[str, object] = {
        "proxy_url": f"http://{proxy.host}:{proxy.port}",
        "control_key": control_key(settings),
        "kernel_eval_url": judge.base_url,
        "model": settings.model.name,
        "command_folder": settings.store.folder / "agents",
    }
    if judge.api_key is not None:
        defaults["kernel_eval_key"] = judge.api_key
    own = {name: getattr(settings.agents, name) for name in settings.agents.model_fields_set}
    return AgentsConfig.model_validate(defaults | {n: v for n, v in own.items() if v is not None} | changes)


def control_key(settings: Settings) -> str:
    """The proxy's control key: the configured one, or the one in the proxy's key file. Raises UsageError."""
    if settings.proxy.control_key is not None:
        return settings.proxy.control_key
    file = settings.store.folder / "control.key"
    try:
        return file.read_text().strip()
    except OSError as error:
        raise UsageError(
            f"no control key: [proxy] control_key is not set and {file} cannot be read ({error.strerror}); "
            "start the proxy first, or set the key"
        ) from error
