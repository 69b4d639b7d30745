"""The model's tokenizer, built from its tokenizer.json: the interface that `renderers` needs, and nothing else.

It replaces transformers' PreTrainedTokenizerFast, whose wrapping costs ten times the tokenisation itself and computes
character offsets that the proxy has no use for. Long texts are tokenised in a thread (`off_the_loop`): a megabyte takes
half a second, during which the event loop would serve nobody. Invariant: torch is never imported.
"""

from __future__ import annotations

import asyncio
import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from tokenizers import Tokenizer

from weir.proxy.errors import SetupError
from weir.store.records.vocabulary_digest import vocabulary_digest

LONG_CHARACTERS = 32_768
_SHORT_TEXT = 32  # characters
_SHORT_TEXTS = 4096  # remembered
_ROLES = ("bos_token", "eos_token", "unk_token", "pad_token")

_T = TypeVar("_T")


async def off_the_loop(num_characters: int, work: Callable[[], _T]) -> _T:
    """The result of `work`, run in a thread where its text is long; it must be safe to run beside the event loop.

    A thread costs a short text more than its tokenisation does.
    """
    return work() if num_characters < LONG_CHARACTERS else await asyncio.to_thread(work)


class ModelTokenizer:
    """Token ids ↔ text, and the folder's chat template where it has one."""

    def __init__(self, folder: Path) -> None:
        self.name_or_path = str(folder)
        self.backend = _load(folder)
        config = _read_json(folder / "tokenizer_config.json")
        self._encode_short = functools.lru_cache(_SHORT_TEXTS)(self._encoded_short)
        self.named_tokens = {role: _token_text(config.get(role)) for role in _ROLES if config.get(role)}
        self.unk_token_id = self._id_of("unk_token")
        self.eos_token_id = self._id_of("eos_token")
        added = self.backend.get_added_tokens_decoder()
        self.added_ids = frozenset(added)
        self.special_ids = frozenset(number for number, token in added.items() if token.special)
        self.all_special_tokens = [added[number].content for number in sorted(self.special_ids)]
        self.num_tokens: int = self.backend.get_vocab_size(with_added_tokens=True)
        vocabulary = self.backend.get_vocab()
        self.vocabulary = vocabulary_digest(vocabulary)
        self.longest_token = max(map(len, vocabulary), default=1)  # in characters or bytes
        self.chat_template = _chat_template(folder, config)

    def encode(self, text: str, add_special_tokens: bool = False) -> list[int]:
        """Token ids of a text. Only the batch call leaves out the offsets, which cost as much as the ids.

        Short texts are remembered: renderers ask for the same few pieces of markup several times a call.
        """
        if len(text) < _SHORT_TEXT:
            return list(self._encode_short(text, add_special_tokens))
        return self.backend.encode_batch_fast([text], add_special_tokens=add_special_tokens)[0].ids

    def decode(self, token_ids: Any, skip_special_tokens: bool = False, **_ignored: Any) -> str:
        """The text of token ids."""
        ids = [token_ids] if isinstance(token_ids, int) else token_ids
        text: str = self.backend.decode(ids, skip_special_tokens=skip_special_tokens)
        return text

    def convert_tokens_to_ids(self, tokens: Any) -> Any:
        """The id of a token, or of each in a list; `unk_token_id` for unknown ones."""
        if not isinstance(tokens, str):
            return [self.convert_tokens_to_ids(token) for token in tokens]
        number = self.backend.token_to_id(tokens)
        return self.unk_token_id if number is None else number

    def apply_chat_template(
        self,
        messages: list[dict[str, Any]],
        *,
        tools: list[dict[str, Any]] | None = None,
        add_generation_prompt: bool = False,
        tokenize: bool = True,
        return_dict: bool = False,
        **template_arguments: Any,
    ) -> Any:
        """Render the folder's own Jinja template as transformers does; ids, or text with tokenize=False.

        Raises ValueError where there is no template.
        """
        from transformers.utils.chat_template_utils import render_jinja_template

        if return_dict or self.chat_template is None:
            raise ValueError("there is no chat template to apply, or more than ids was asked for")
        arguments: dict[str, Any] = {**self.named_tokens, **template_arguments, "tools": tools}
        rendered: Any = render_jinja_template(
            conversations=[messages],
            chat_template=self.chat_template,
            add_generation_prompt=add_generation_prompt,
            **arguments,
        )
        text = rendered[0][0]
        return self.encode(text) if tokenize else text

    def _encoded_short(self, text: str, add_special_tokens: bool) -> tuple[int, ...]:
        return tuple(self.backend.encode(text, add_special_tokens=add_special_tokens).ids)

    def _id_of(self, role: str) -> int | None:
        text = self.named_tokens.get(role)
        number: int | None = self.backend.token_to_id(text) if text else None
        return number


def _load(folder: Path) -> Tokenizer:
    path = folder / "tokenizer.json"
    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:  # the Rust library raises bare Exception; this is the edge of the start
        raise SetupError(f"cannot load the tokenizer {path}: {error}; name a Hugging Face model folder") from error


def _read_json(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    value = json.loads(path.read_text())
    return value if isinstance(value, dict) else {}


def _token_text(value: Any) -> str:
    return str(value["content"] if isinstance(value, dict) else value)


def _chat_template(folder: Path, config: dict[str, Any]) -> str | None:
    file = folder / "chat_template.jinja"
    template = file.read_text() if file.exists() else config.get("chat_template")
    if isinstance(template, list):
        template = next((item["template"] for item in template if item.get("name") == "default"), None)
    return template
