"""The ledger's order: tokens are in the ledger before a request, from which answers are built, holds them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from support_loop import run_request

from weir.engine.batch import Drawn
from weir.engine.ledger import Ledger
from weir.engine.request import Request


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


def test_a_token_is_in_the_ledger_before_the_request_holds_it(tiny_model_dir: Path, tmp_path: Path) -> None:
    ledger = WatchedLedger(tmp_path / "ledger.jsonl")
    request = run_request(tiny_model_dir, ledger)
    assert ledger.seen == [(i, i) for i in range(10)]
    lines = [json.loads(line) for line in ledger.path.read_text().splitlines()]
    assert [(line["token"], line["logprob"]) for line in lines] == list(
        zip(request.output_ids, request.logprobs, strict=True)
    )


def test_a_token_that_the_ledger_cannot_take_is_in_no_answer(tiny_model_dir: Path) -> None:
    request = run_request(tiny_model_dir, Ledger(Path("/dev/full")))
    assert request.finish is not None and "No space left on device" in request.finish["message"]
    assert (request.output_ids, request.logprobs) == ([], [])
