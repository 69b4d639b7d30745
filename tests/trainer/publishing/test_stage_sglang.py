"""`weir stage` beside a real SGLang: it loads each staged version, and serves its weights."""

from __future__ import annotations

import math
from pathlib import Path

from sglang_server import needs_sglang, start_sglang
from support_servers import ServerProcess
from support_staged import start_stage, wait_until, write_next

from weir.store.config import StoreConfig

pytestmark = needs_sglang
PROMPT = [5, 6, 7, 8]


def logprobs(engine: ServerProcess) -> list[float]:
    """Of four greedy tokens."""
    body = {"input_ids": PROMPT, "sampling_params": {"max_new_tokens": 4, "temperature": 0}, "return_logprob": True}
    return [row[0] for row in engine.post("/generate", body)["meta_info"]["output_token_logprobs"]]


def test_sglang_serves_what_was_staged(tiny_model_dir: Path, store: StoreConfig, tmp_path: Path) -> None:
    log = tmp_path / "stage.log"
    engine = start_sglang(tiny_model_dir, folder=tmp_path, arguments=("--weight-version", "0"))
    newest = write_next(store, tiny_model_dir, 1)
    staging = start_stage(tmp_path / "staged", engine.url, store.folder, log)
    try:
        found = [logprobs(engine)]
        for number in (1, 2):
            if number == 2:
                newest = write_next(store, tiny_model_dir, 2)
            wait_until(lambda n=number: engine.get("/model_info")["weight_version"] == str(n), f"on {number}", log)
            found.append(logprobs(engine))
        fresh = start_sglang(newest.path, folder=tmp_path)
        expected = logprobs(fresh)
        fresh.stop()
        assert found[0] != found[1] != found[2]
        assert all(math.isclose(a, b, abs_tol=1e-5) for a, b in zip(found[2], expected, strict=True))
    finally:
        staging.kill()
        staging.wait()
        engine.stop()
