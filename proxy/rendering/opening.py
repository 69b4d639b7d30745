"""Which renderer a model folder gets, and which variables of its chat template its prompts know.

The renderer comes from the `renderers` library: named in the configuration, or chosen by the model's architecture if
its first tokens agree with the folder's own chat template; else that template itself (`template_renderer.py`), by which
exact ids then continue (`template_turns.py`).
"""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

from renderers import Renderer, config_from_name, create_renderer

from weir.proxy.config import ProxyConfig
from weir.proxy.conversation.call_request import Message
from weir.proxy.errors import SetupError
from weir.proxy.rendering.families import DEFAULT
from weir.proxy.rendering.renderer import Rendering
from weir.proxy.rendering.template_renderer import TemplateRenderer
from weir.proxy.rendering.template_variables import (
    NO_VARIABLES,
    PROBES,
    SWITCHES,
    TemplateVariables,
    Variables,
    template_names,
)
from weir.proxy.rendering.tokenizer import ModelTokenizer

BY_MODEL_TYPE = {
    "deepseek_v3": "deepseek-v3",
    "glm4_moe": "glm-4.5",
    "gpt_oss": "gpt-oss",
    "kimi_k2": "kimi-k2",
    "llama": "llama-3",
    "minimax_m2": "minimax-m2",
    "qwen3": "qwen3",
    "qwen3_5": "qwen3.5",
    "qwen3_moe": "qwen3",
}
_SAMPLE: list[Message] = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}]

logger = logging.getLogger("weir.proxy.rendering.opening")


def open_rendering(folder: Path, model_name: str, config: ProxyConfig) -> Rendering:
    """Choose and build the renderer of a model folder. Raises `SetupError`."""
    tokenizer = ModelTokenizer(folder)
    rendering = _opened(tokenizer, folder, model_name, config)
    rendering.variables = _variables(rendering, tokenizer, config)
    return rendering


def context_length(folder: Path) -> int | None:
    """max_position_embeddings of the model's configuration, where it names one."""
    config = _model_config(folder)
    length = config.get("max_position_embeddings") or config.get("text_config", {}).get("max_position_embeddings")
    return length if isinstance(length, int) else None


def _opened(tokenizer: ModelTokenizer, folder: Path, model_name: str, config: ProxyConfig) -> Rendering:
    if config.renderer not in ("auto", DEFAULT):
        return _of_family(tokenizer, config.renderer, config)
    name = BY_MODEL_TYPE.get(_model_type(folder)) if config.renderer == "auto" else None
    rendering = _chosen(tokenizer, name, config) if name else None
    return rendering or _default(tokenizer, model_name, config)


def _of_family(
    tokenizer: ModelTokenizer, name: str, config: ProxyConfig, variables: Variables = NO_VARIABLES
) -> Rendering:
    return Rendering(tokenizer, _build(tokenizer, name, config, variables), name, config.tool_prompt)


def _variables(rendering: Rendering, tokenizer: ModelTokenizer, config: ProxyConfig) -> TemplateVariables:
    """The variables that the prompts of a rendering know; a switch that the settings decide is not among them."""
    name, by_template = rendering.name, isinstance(rendering.renderer, TemplateRenderer)
    if by_template:
        names = template_names(tokenizer.chat_template)
    else:
        names = frozenset(type(config_from_name(name)).template_field_names())

    def build(variables: Variables) -> Rendering | None:
        try:
            if by_template:
                renderer = TemplateRenderer(tokenizer, config, variables)
                return Rendering(tokenizer, renderer, name, config.tool_prompt)
            return _of_family(tokenizer, name, config, variables)
        except Exception:  # the library and templates raise any exception for values that they refuse
            return None

    def of_template(variables: Variables) -> tuple[str | None, ...] | None:
        return _texts_by_template(tokenizer, config, variables)

    def of_family(variables: Variables) -> tuple[str | None, ...] | None:
        return _texts_by_family(tokenizer, name, config, variables)

    # A library's renderer may know a switch that this model's own template does not have.
    is_own = not by_template and _agree(of_family(NO_VARIABLES), of_template(NO_VARIABLES))

    def written(variables: Variables) -> tuple[str | None, ...] | None:
        texts = of_template(variables) if by_template else of_family(variables)
        if texts is None or not any(texts) or (is_own and not _agree(texts, of_template(variables))):
            return None
        return texts

    return TemplateVariables(names if config.thinking is None else names - set(SWITCHES), written, build)


def _texts_by_template(
    tokenizer: ModelTokenizer, config: ProxyConfig, variables: Variables
) -> tuple[str | None, ...] | None:
    """The probes by the folder's own template, None for those that it refuses; None where the folder has none."""
    if tokenizer.chat_template is None:
        return None
    known = _switched(config) | dict(variables)

    def text(probe: list[Message]) -> str | None:
        try:
            return tokenizer.decode(tokenizer.apply_chat_template(probe, add_generation_prompt=True, **known))
        except Exception:  # templates raise any exception
            return None

    return tuple(text(probe) for probe in PROBES)


def _texts_by_family(
    tokenizer: ModelTokenizer, name: str, config: ProxyConfig, variables: Variables
) -> tuple[str | None, ...] | None:
    """The probes by a renderer of the library; None where it refuses the variables."""
    try:
        renderer = _build(tokenizer, name, config, variables)
        ids = [renderer.render_ids(probe, add_generation_prompt=True) for probe in PROBES]
    except Exception:  # the library raises any exception
        return None
    return tuple(tokenizer.decode(list(one)) for one in ids)


def _agree(texts: tuple[str | None, ...] | None, template: tuple[str | None, ...] | None) -> bool:
    """Whether a renderer writes the first probes as the template does, where that takes them.

    Not the last one, in which the settings may keep the reasoning that a template drops.
    """
    if texts is None or template is None:
        return False
    return all(own is None or own == text for text, own in zip(texts[:-1], template[:-1], strict=True))


def _switched(config: ProxyConfig) -> dict[str, Any]:
    """The variables by which templates switch their thinking, each of which ignores the other's name."""
    return {} if config.thinking is None else dict.fromkeys(SWITCHES, config.thinking)


def _chosen(tokenizer: ModelTokenizer, name: str, config: ProxyConfig) -> Rendering | None:
    """The renderer of the model's architecture, unless the folder's tokenizer or chat template contradicts it."""
    try:
        rendering = _of_family(tokenizer, name, config)
    except SetupError as error:
        logger.warning("the renderer %r does not fit the tokenizer in %s: %s", name, tokenizer.name_or_path, error)
        return None
    if tokenizer.chat_template is not None and rendering.render(_SAMPLE, None) != _by_template(tokenizer, config):
        logger.warning("the chat template in %s is not that of the renderer %r", tokenizer.name_or_path, name)
        return None
    return rendering


def _by_template(tokenizer: ModelTokenizer, config: ProxyConfig) -> list[int] | None:
    try:
        ids: list[int] = tokenizer.apply_chat_template(_SAMPLE, add_generation_prompt=True, **_switched(config))
    except Exception as error:  # a template that refuses the sample proves nothing about the renderer
        logger.warning("the chat template in %s does not take a sample: %s", tokenizer.name_or_path, error)
        return None
    return ids


def _default(tokenizer: ModelTokenizer, model_name: str, config: ProxyConfig) -> Rendering:
    if tokenizer.chat_template is None:
        raise SetupError(
            f"the model {model_name} in {tokenizer.name_or_path} has no chat template and no known renderer; "
            "name one in proxy.renderer"
        )
    rendering = Rendering(tokenizer, TemplateRenderer(tokenizer, config), DEFAULT, config.tool_prompt)
    inexact = rendering.inexact_turns()
    if not inexact:
        logger.info("no renderer is known for the model %s: its own chat template keeps turns exact", model_name)
    else:
        logger.warning(
            "no renderer is known for the model %s, and its own chat template changes what stood before %s: there the "
            "prompt is rendered anew; name a renderer in proxy.renderer to keep turns exact",
            model_name,
            ", ".join(inexact),
        )
    return rendering


def _build(tokenizer: ModelTokenizer, name: str, config: ProxyConfig, variables: Variables = NO_VARIABLES) -> Renderer:
    try:
        settings: Any = config_from_name(name)
        changes: dict[str, Any] = {"thinking_retention": "all"} if config.keep_reasoning else {}
        if config.thinking is not None and "enable_thinking" in type(settings).model_fields:
            changes["enable_thinking"] = config.thinking
        return create_renderer(tokenizer, type(settings)(**(changes | dict(variables))))
    except Exception as error:  # the library raises any exception; the start must end with a clear error
        raise SetupError(f"cannot build the renderer {name!r}: {error}; set proxy.renderer to another") from error


def _model_config(folder: Path) -> dict[str, Any]:
    path = folder / "config.json"
    value = json.loads(path.read_text()) if path.exists() else {}
    return value if isinstance(value, dict) else {}


def _model_type(folder: Path) -> str:
    return str(_model_config(folder).get("model_type", ""))
