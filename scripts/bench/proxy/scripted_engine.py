"""The engine of the proxy's benchmark: every call gets the same answer of 128 tokens, encoded once.

It implements SGLang's /generate and its chat completions with ids (`sglext`) and computes nothing, so that the proxy is
what is measured. A stream sends one token per event, `TOKEN_S` apart, as an engine that decodes a batch does.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, MutableMapping
from pathlib import Path
from typing import Any

NUM_OUTPUT = 128
TOKEN_S = 0.01
TEXT = (
    "Write a Triton kernel that adds two vectors. import triton import triton.language as tl "
    "def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr): mask = offsets < n "
)
MARKERS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
MARKUP = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>")
_INFO = {"model_path": "scripted", "served_model_name": "weir", "tp_size": 1, "dp_size": 1, "weight_version": "1"}


def make_model_folder(folder: Path) -> Path:
    """Write a tokenizer with Qwen3's markers and a configuration, without weights; returns the folder."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator([TEXT], trainers.BpeTrainer(vocab_size=600, initial_alphabet=alphabet))
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in MARKERS])
    tokenizer.add_tokens([AddedToken(token, special=False, normalized=False) for token in MARKUP])
    folder.mkdir(parents=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|im_end|>"}))
    (folder / "config.json").write_text(json.dumps({"model_type": "qwen3", "max_position_embeddings": 65536}))
    return folder


def text_of(num_tokens: int, model: Path) -> str:
    """A text that the model folder's tokenizer encodes as about `num_tokens` tokens."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    text: str = tokenizer.decode(tokenizer.encode(TEXT * num_tokens).ids[:num_tokens])
    return text


class Script:
    """The answer in every form: whole or streamed, of /generate or of chat completions."""

    def __init__(self, model: Path) -> None:
        from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
        self.ids: list[int] = [
            *tokenizer.encode(TEXT * 10).ids[: NUM_OUTPUT - 1],
            tokenizer.encode("<|im_end|>").ids[0],
        ]
        self.logprobs = [-0.123456789 * (i % 17) for i in range(NUM_OUTPUT)]
        self.texts = [tokenizer.decode([n]) for n in self.ids]
        self.text = tokenizer.decode(self.ids)
        self.whole = json.dumps(self._chunk(0, NUM_OUTPUT)).encode()
        self.events = [_event(self._chunk(i, i + 1)) for i in range(NUM_OUTPUT)]
        self.chat = json.dumps(self._chat()).encode()
        self.chat_events = [_event(chunk) for chunk in self._chat_chunks()]

    def _chunk(self, start: int, end: int) -> dict[str, Any]:
        """Output tokens start:end in the form of /generate with incremental streaming."""
        done = end == NUM_OUTPUT
        meta = {
            "id": "scripted",
            "finish_reason": {"type": "stop", "matched": self.ids[-1]} if done else None,
            "prompt_tokens": 128,
            "completion_tokens": end,
            "cached_tokens": 0,
            "weight_version": "1",
            "output_token_logprobs": [[self.logprobs[i], self.ids[i], None] for i in range(start, end)],
        }
        return {"text": "".join(self.texts[start:end]), "output_ids": self.ids[start:end], "meta_info": meta}

    def _entries(self) -> list[dict[str, Any]]:
        return [
            {"token": text, "logprob": logprob, "bytes": list(text.encode()), "top_logprobs": []}
            for text, logprob in zip(self.texts, self.logprobs, strict=True)
        ]

    def _chat_chunks(self) -> Iterator[dict[str, Any]]:
        """The answer as a stream of tokens; the ids come last, in a chunk of their own."""
        base = {"id": "scripted", "object": "chat.completion.chunk", "created": 0, "model": "weir"}
        empty = {"index": 0, "delta": {}, "logprobs": None, "finish_reason": None, "matched_stop": None}
        yield base | {"choices": [empty | {"delta": {"role": "assistant", "content": ""}}]}
        for entry in self._entries():
            yield base | {"choices": [empty | {"delta": {"content": entry["token"]}, "logprobs": {"content": [entry]}}]}
        yield base | {"choices": [empty | {"finish_reason": "stop", "matched_stop": self.ids[-1]}]}
        yield base | {"choices": [], "usage": None, "sglext": {"input_ids": [*range(128)], "output_ids": [self.ids]}}

    def _chat(self) -> dict[str, Any]:
        choice = {
            "index": 0,
            "message": {"role": "assistant", "content": self.text, "reasoning_content": None, "tool_calls": None},
            "logprobs": {"content": self._entries()},
            "finish_reason": "stop",
            "matched_stop": self.ids[-1],
        }
        return {
            "id": "scripted",
            "object": "chat.completion",
            "created": 0,
            "model": "weir",
            "choices": [choice],
            "usage": {"prompt_tokens": 128, "completion_tokens": NUM_OUTPUT, "total_tokens": 128 + NUM_OUTPUT},
            "metadata": {"weight_version": "1"},
            "sglext": {"input_ids": list(range(128)), "output_ids": [self.ids]},
        }


def serve(port: int, model: Path) -> None:
    """Serve until killed."""
    import uvicorn

    script, info = Script(model), json.dumps(_INFO).encode()
    models = json.dumps({"object": "list", "data": [{"id": "weir", "object": "model"}]}).encode()
    answers = {"/generate": script.whole, "/v1/chat/completions": script.chat, "/v1/models": models}

    async def app(scope: Any, receive: Any, send: Any) -> None:
        body = await _read(receive)
        streams = {"/generate": script.events, "/v1/chat/completions": script.chat_events}
        if scope["path"] in streams and (b'"stream":true' in body[-2000:] or b'"stream": true' in body[-2000:]):
            await _stream(streams[scope["path"]], send)
            return
        answer = answers.get(scope["path"], info)
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(answer)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": answer})

    uvicorn.run(app, port=port, loop="uvloop", http="httptools", access_log=False, lifespan="off", log_level="warning")


async def _read(receive: Any) -> bytes:
    parts = []
    message: MutableMapping[str, Any] = {"more_body": True}
    while message.get("more_body"):
        message = await receive()
        parts.append(message.get("body", b""))
    return b"".join(parts)


async def _stream(events: list[bytes], send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
    for event in events:
        await asyncio.sleep(TOKEN_S)
        await send({"type": "http.response.body", "body": event, "more_body": True})
    await send({"type": "http.response.body", "body": b"data: [DONE]\n\n"})


def _event(chunk: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


if __name__ == "__main__":
    import sys

    serve(int(sys.argv[1]), Path(sys.argv[2]))
