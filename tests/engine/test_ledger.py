"""The ledger's order: tokens are in the ledger before a request, from which answers are built, holds them."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from pathlib import Path

import torch

from weir.engine.batch import Drawn
from weir.engine.decoder import Decoder
from weir.engine.ledger import Ledger
from weir.engine.loop import EngineLoop
from weir.engine.params import SamplingParams, resolve_sampling
from weir.engine.request import Request
from weir.engine.texts import Texts
from weir.engine.weights import load_model


class WatchedLedger(Ledger):
    """Records, before every write, the number of tokens that requests held and of their lines in the file."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.path = path
        self.seen: list[tuple[int, int]] = []

    def write(self, requests: Sequence[Request], drawn: Drawn, version: str) -> None:
        self.seen.append(
            (sum(len(request.output_ids) for request in requests), len(self.path.read_text().splitlines()))
        )
        super().write(requests, drawn, version)


def generated(model_dir: Path, ledger: Ledger) -> Request:
    """A request of ten tokens, ended by an engine loop that keeps `ledger`."""
    ended = threading.Event()
    model = load_model(model_dir, dtype=torch.float32, device=torch.device("cpu"))
    loop = EngineLoop(
        Decoder(model, max_rows=1, max_length=64),
        Texts(model_dir),
        version="7",
        max_running=1,
        prefill_tokens=64,
        prefix_tokens=0,
        seed=0,
        ledger=ledger,
        announce=lambda requests: ended.set() if any(request.finish for request in requests) else None,
    )
    sampling = resolve_sampling(
        SamplingParams(max_new_tokens=10, ignore_eos=True), prompt_len=3, context_len=64, eos_ids=frozenset()
    )
    request = Request(
        rid="r",
        prompt_ids=[1, 2, 3],
        sampling=sampling,
        seed=0,
        stream=True,
        return_logprob=True,
        logprob_start=None,
        changed=lambda: None,
    )
    loop.start()
    loop.submit(request)
    assert ended.wait(60)
    loop.close()
    return request


def test_a_token_is_in_the_ledger_before_the_request_holds_it(tiny_model_dir: Path, tmp_path: Path) -> None:
    ledger = WatchedLedger(tmp_path / "ledger.jsonl")
    request = generated(tiny_model_dir, ledger)
    assert ledger.seen == [(i, i) for i in range(10)]
    lines = [json.loads(line) for line in ledger.path.read_text().splitlines()]
    assert [(line["token"], line["logprob"]) for line in lines] == list(
        zip(request.output_ids, request.logprobs, strict=True)
    )


def test_a_token_that_the_ledger_cannot_take_is_in_no_answer(tiny_model_dir: Path) -> None:
    request = generated(tiny_model_dir, Ledger(Path("/dev/full")))
    assert request.finish is not None and "No space left on device" in request.finish["message"]
    assert (request.output_ids, request.logprobs) == ([], [])
