"""One request through an engine loop in this process, for what no client can cause."""

from __future__ import annotations

import threading
from pathlib import Path

import torch

from weir.engine.decoder import Decoder
from weir.engine.grammars import Matcher
from weir.engine.ledger import Ledger
from weir.engine.loop import EngineLoop
from weir.engine.params import SamplingParams, resolve_sampling
from weir.engine.request import Request
from weir.engine.texts import Texts
from weir.engine.weights import load_model


def run_request(model_dir: Path, ledger: Ledger | None = None, matcher: Matcher | None = None) -> Request:
    """A request of ten tokens, ended by an engine loop that keeps `ledger`."""
    ended = threading.Event()
    model = load_model(model_dir, dtype=torch.float32, device=torch.device("cpu"))
    loop = EngineLoop(
        Decoder(model, max_rows=1, max_length=64),
        Texts(model_dir),
        version="7",
        max_running=1,
        prefill_tokens=64,
        prefill_ms=200.0,
        prefix_tokens=0,
        seed=0,
        ledger=ledger,
        announce=lambda requests: ended.set() if any(request.finish for request in requests) else None,
    )
    sampling = resolve_sampling(
        SamplingParams(max_new_tokens=10, ignore_eos=True),
        prompt_len=3,
        context_len=64,
        vocab_size=512,
        eos_ids=frozenset(),
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
        matcher=matcher,
    )
    loop.start()
    loop.submit(request)
    assert ended.wait(60)
    loop.close()
    return request
