"""Model folders of many families, made here: a byte-level tokenizer with the family's own tokens, and no weights.

`said` gives the tokens of an answer as a model of the family would write it, and `spelled_out` the same text in other
tokens, as sampling models produce them.
"""

from __future__ import annotations

import functools
import json
import tempfile
from pathlib import Path
from typing import Any

from support_model import make_tokenizer
from tokenizers import AddedToken, Tokenizer

from weir.proxy.config import ProxyConfig
from weir.proxy.conversation.call_request import Message, Tool
from weir.proxy.rendering.opening import open_rendering
from weir.proxy.rendering.renderer import Rendering

_QWEN = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_VISION = ("<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>")
_HERMES = ("<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")
_GLM_ROLES = ("[gMASK]", "<sop>", "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>", "<|endoftext|>")
_ARGS = ("<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>")
_DEEPSEEK = tuple(
    f"<｜{name}｜>"
    for name in (
        "begin▁of▁sentence",
        "end▁of▁sentence",
        "User",
        "Assistant",
        "tool▁calls▁begin",
        "tool▁calls▁end",
        "tool▁call▁begin",
        "tool▁call▁end",
        "tool▁sep",
        "tool▁outputs▁begin",
        "tool▁outputs▁end",
        "tool▁output▁begin",
        "tool▁output▁end",
        *("latest_reminder", "action", "query", "authority", "domain", "title", "read_url"),
    )
)
_KIMI = (
    *("<|im_user|>", "<|im_assistant|>", "<|im_system|>", "<|im_middle|>", "<|im_end|>", "<|endoftext|>"),
    *("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>", "<|tool_call_begin|>"),
    *("<|tool_call_argument_begin|>", "<|tool_call_end|>"),
    *("<|media_begin|>", "<|media_content|>", "<|media_pad|>", "<|media_end|>"),
)
_HY3 = tuple(
    f"{name}:opensource{end}"
    for name, end in (
        *((f"<｜{name}", "｜>") for name in ("hy_begin_of_sentence", "hy_eos", "hy_User", "hy_Assistant")),
        ("<｜reasoning_mode", "｜>"),
        *(
            (f"<{slash}{name}", ">")
            for name in ("think", "tool_calls", "tool_call", "arg_key", "arg_value", "tool_responses", "tool_response")
            for slash in ("", "/")
        ),
        ("<tool_sep", ">"),
    )
)
_INKLING = (
    *("<|message_user|>", "<|message_model|>", "<|message_system|>", "<|message_tool|>", "<|content_text|>"),
    *("<|content_thinking|>", "<|content_image|>", "<|content_audio_input|>", "<|content_xml|>"),
    *("<|content_invoke_tool_json|>", "<|content_invoke_tool_text|>", "<|content_model_end_sampling|>"),
    *("<|end_message|>", "<|audio_end|>", "<|unused_200054|>", "<|unused_200053|>", "<|endoftext|>"),
)
_LLAMA = (
    *("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
    *("<|end_of_text|>", "<|eom_id|>", "<|python_tag|>"),
)

TOKENS: dict[str, tuple[str, ...]] = {
    "qwen3": (*_QWEN, *_HERMES),
    "prime-qwen3": (*_QWEN, *_HERMES),
    "qwen3-vl": (*_QWEN, *_HERMES, *_VISION),
    "qwen3.5": (*_QWEN, *_HERMES, *_VISION),
    "qwen3.6": (*_QWEN, *_HERMES, *_VISION),
    "qwen3.8": (*_QWEN, *_HERMES, *_VISION),
    "nemotron-3": (*_QWEN, *_HERMES),
    "glm-4.5": (*_GLM_ROLES, *_HERMES, *_ARGS),
    "glm-5": (*_GLM_ROLES, *_HERMES, *_ARGS),
    "llama-3": _LLAMA,
    "deepseek-v3": _DEEPSEEK,
    "deepseek-r1": (*_DEEPSEEK, "<think>", "</think>"),
    "deepseek-v4": (*_DEEPSEEK, "<think>", "</think>", "｜DSML｜"),
    "kimi-k2": _KIMI,
    "kimi-k2.5": (*_KIMI, "<think>", "</think>"),
    "minimax-m2": ("]~!b[", "]~b]", "[e~[", "<think>", "</think>", "<minimax:tool_call>", "</minimax:tool_call>"),
    "hy3": _HY3,
    "inkling": _INKLING,
    "laguna-xs.2": (
        *("〈|EOS|〉", "<think>", "</think>", "<assistant>", "</assistant>", "<tool_call>", "</tool_call>"),
        *("<user>", "</user>", "<system>", "</system>"),
    ),
}
_END = {
    "llama-3": "<|eot_id|>",
    "minimax-m2": "[e~[",
    "inkling": "<|endoftext|>",
    "laguna-xs.2": "〈|EOS|〉",
    "hy3": "<｜hy_eos:opensource｜>",
    "glm-4.5": "<|endoftext|>",
    "glm-5": "<|endoftext|>",
    "deepseek-v3": "<｜end▁of▁sentence｜>",
    "deepseek-r1": "<｜end▁of▁sentence｜>",
    "deepseek-v4": "<｜end▁of▁sentence｜>",
}
FAMILIES = tuple(TOKENS)
WITHOUT_THOUGHT = ("llama-3", "hy3")  # the one knows none, the other not unless its system prompt asks
TOOLS: list[Tool] = [
    {
        "type": "function",
        "function": {
            "name": "add",
            "description": "Adds.",
            "parameters": {"type": "object", "properties": {"a": {"type": "integer"}, "note": {"type": "string"}}},
        },
    }
]


@functools.cache
def rendering_of(name: str) -> Rendering:
    """The renderer of a family over a tokenizer that was made here."""
    with tempfile.TemporaryDirectory() as folder:
        make_family(Path(folder), name)
        return open_rendering(Path(folder), "weir", ProxyConfig(renderer=name, thinking=True))


def make_family(folder: Path, name: str) -> None:
    """Write the tokenizer of a family to `folder`."""
    plain = json.loads(make_tokenizer(512).backend_tokenizer.to_str())
    plain["added_tokens"] = []
    tokenizer = Tokenizer.from_str(json.dumps(plain))
    markup = [text for text in TOKENS[name] if text in _HERMES]
    tokenizer.add_special_tokens([AddedToken(text, special=True) for text in TOKENS[name] if text not in markup])
    tokenizer.add_tokens([AddedToken(text, special=False, normalized=False) for text in markup])
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": _END.get(name, "<|im_end|>")}))
    (folder / "config.json").write_text(json.dumps({"max_position_embeddings": 65536}))


def said(rendering: Rendering, messages: list[Message], tools: list[Tool] | None, answer: Message) -> list[int]:
    """The tokens of this answer after these messages, as the model would write it."""
    if rendering.name in WITHOUT_THOUGHT:
        answer = {name: value for name, value in answer.items() if name != "reasoning_content"}
    prompt = rendering.render(messages, tools)
    whole = rendering.renderer.render([*messages, answer], tools=tools).token_ids
    start = next((i for i, (one, other) in enumerate(zip(prompt, whole, strict=False)) if one != other), len(prompt))
    ids = whole[start:]
    end = next((i for i, number in enumerate(ids) if number in rendering.stop_ids), None)
    ids = [*ids, rendering.stop_ids[0]] if end is None else ids[: end + 1]
    thought = answer.get("reasoning_content") or ""
    text = rendering.tokenizer.decode(ids)
    if thought not in text:
        # The template drops it; the model would say it all the same.
        opening = "" if rendering.tokenizer.decode(prompt).rstrip().endswith("<think>") else "<think>\n"
        closing = "" if text.startswith("</think>") else "\n</think>\n\n"
        ids = rendering.tokenizer.encode(f"{opening}{thought}{closing}") + ids
    return ids


def spelled_out(rendering: Rendering, ids: list[int]) -> list[int]:
    """The same text in single characters, where the tokenizer would merge them."""
    spelled: list[int] = []
    for number in ids:
        if number in rendering.tokenizer.added_ids:
            spelled.append(number)
        else:
            spelled += [n for character in rendering.tokenizer.decode([number]) for n in one(rendering, character)]
    return spelled


def one(rendering: Rendering, character: str) -> list[int]:
    """The tokens of one character."""
    return rendering.tokenizer.encode(character)


def call_message(arguments: dict[str, Any], **fields: Any) -> Message:
    """An assistant's turn that calls the tool."""
    function = {"name": "add", "arguments": json.dumps(arguments)}
    return {"role": "assistant", "content": "", **fields} | {
        "tool_calls": [{"id": "functions.add:0", "type": "function", "function": function}]
    }
