"""The path of a call in one object: proxy → real router → scripted engine, whose answers are written as text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from support_model import make_tokenizer
from support_proxy import RunningProxy
from support_router import Router
from support_scripted_engine import Script, ScriptedEngine

END = "<|im_end|>"


@dataclass(kw_only=True)
class Way:
    """The path of a call: proxy → router → scripted engine."""

    engine: ScriptedEngine
    router: Router
    proxy: RunningProxy

    def say(self, *scripts: Script | str) -> None:
        """Script these answers, one for each piece that comes; the last one repeats."""
        todo = [script if isinstance(script, Script) else Script(ids=ids_of(script)) for script in scripts]
        self.engine.script = lambda _: todo.pop(0) if len(todo) > 1 else todo[0]

    def continue_after(self, first: Script) -> None:
        """The first piece gets `first`, the next the rest of its ids, wherever the tokens that arrived end.

        A router may drop the last tokens of an engine that dies.
        """
        prompt_length = 0

        def script(body: dict[str, Any]) -> Script:
            nonlocal prompt_length
            if len(self.engine.requests) == 1:
                prompt_length = len(body["input_ids"])
                return first
            return Script(ids=first.ids[len(body["input_ids"]) - prompt_length :], version="2")

        self.engine.script = script


def ids_of(text: str) -> list[int]:
    """Token ids of an answer, with its end of turn."""
    ids: list[int] = make_tokenizer(512).encode(text + END, add_special_tokens=False)
    return ids


def text_of(ids: list[int]) -> str:
    """The text of token ids, special tokens included."""
    text: str = make_tokenizer(512).decode(ids, skip_special_tokens=False)
    return text
