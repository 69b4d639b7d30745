"""Calls to an engine's /generate, as tests make them: whole, or streamed and read chunk by chunk."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from support_servers import ServerProcess

PROMPT = list(range(10, 30))


def body_of(prompt: list[int] | None = None, *, rid: str | None = None, **sampling: Any) -> dict[str, Any]:
    """A body for /generate with logprobs: 16 greedy tokens past any end of turn, unless `sampling` says otherwise."""
    params = {"temperature": 0.0, "max_new_tokens": 16, "ignore_eos": True} | sampling
    body: dict[str, Any] = {"input_ids": prompt or PROMPT, "sampling_params": params, "return_logprob": True}
    return body if rid is None else body | {"rid": rid}


def generate(server: ServerProcess, prompt: list[int] | None = None, **sampling: Any) -> dict[str, Any]:
    """One whole call."""
    answer: dict[str, Any] = server.post("/generate", body_of(prompt, **sampling))
    return answer


def logprobs_of(answer: dict[str, Any]) -> list[float]:
    """The logprobs of the output tokens; the ids beside them must be the output's."""
    entries = answer["meta_info"]["output_token_logprobs"]
    assert [token for _, token, _ in entries] == answer["output_ids"]
    return [logprob for logprob, _, _ in entries]


def read_ledger(server: ServerProcess, rid: str | None = None) -> list[dict[str, Any]]:
    """The lines of the engine's ledger, in the order of writing; with `rid` those of one request."""
    assert server.ledger_path is not None
    lines = [json.loads(line) for line in server.ledger_path.read_text().splitlines()]
    return [line for line in lines if rid is None or line["rid"] == rid]


def versions_of(answer: dict[str, Any]) -> list[str]:
    """The weight version of every output token; the spans must cover them without gap or overlap."""
    versions: list[str] = []
    for span in answer["meta_info"]["weight_versions"]:
        assert span["start"] == len(versions)
        versions += [span["version"]] * (span["end"] - span["start"])
    assert len(versions) == len(answer["output_ids"])
    return versions


class StreamedCall:
    """A streamed call in progress; chunks come in their order, `[DONE]` ends them."""

    def __init__(self, lines: Iterator[str]) -> None:
        self._lines = lines
        self.chunks: list[dict[str, Any]] = []
        self.done = False

    def next(self) -> dict[str, Any]:
        """The next chunk."""
        for line in self._lines:
            if line.startswith("data: {"):
                self.chunks.append(json.loads(line.removeprefix("data: ")))
                return self.chunks[-1]
            if line == "data: [DONE]":
                self.done = True
        raise StopIteration

    def wait_for(self, num_tokens: int) -> dict[str, Any]:
        """The first chunk with at least `num_tokens` output tokens, or the last one."""
        while True:
            chunk = self.next()
            if chunk["meta_info"]["completion_tokens"] >= num_tokens or chunk["meta_info"]["finish_reason"]:
                return chunk

    def last(self) -> dict[str, Any]:
        """Read to the end; the last chunk."""
        try:
            while True:
                self.next()
        except StopIteration:
            return self.chunks[-1]


@contextmanager
def streamed(server: ServerProcess, body: dict[str, Any]) -> Iterator[StreamedCall]:
    """Open a streamed call; leaving the block hangs up."""
    with server.client.stream("POST", "/generate", json=body | {"stream": True}) as response:
        assert response.status_code == 200, response.read()
        yield StreamedCall(response.iter_lines())
