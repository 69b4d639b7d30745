"""A real SGLang serves the adapters of LoRA rounds beside its base; records name the version whose adapter it was."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from io import StringIO
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from pydantic import ValidationError
from rich.console import Console
from sglang_server import needs_sglang, start_sglang
from support_model import make_tiny_model
from support_proxy import CONTROL_KEY, RunningProxy, running_proxy
from support_rounds import Judge, model_logprobs, trainer_config
from support_router import running_router
from support_samples import make_samples
from support_servers import ServerProcess, start_engine

from weir.scripts.cli.doctor.exactness import exactness_findings
from weir.scripts.cli.doctor.finding import Verdict
from weir.store.catalog.catalog import Catalog
from weir.store.config import StoreConfig
from weir.store.records.call_record import CallRecord, unpack_ids, unpack_logprobs
from weir.store.version_forms import adapter_folder, other_forms, published
from weir.trainer.errors import PublishFailed
from weir.trainer.learner.learner import Learner
from weir.trainer.publishing.catalog_entries import serve
from weir.trainer.publishing.publish import PublishReport
from weir.trainer.settings.config import TrainerConfig
from weir.trainer.settings.lora import LINEAR_LAYERS
from weir.trainer.versions.stored import prune
from weir.trainer.versions.version_folder import verify, version_path, write_version

LORA: dict[str, Any] = {"device": "cpu", "lora_rank": 4, "lora_alpha": 8.0, "lr": 2e-2}
ENTRY: dict[str, Any] = {"round_id": None, "config_hash": "", "seed": 0, "groups": []}
FLAGS = (
    *("--enable-lora", "--lora-backend", "torch_native", "--max-lora-rank", "4"),
    *("--lora-target-modules", *LINEAR_LAYERS),
)
NAMED = {"form": "adapter", "adapter_name": "policy"}


class Stack:
    """One engine, a router, a proxy whose calls name the adapter, and versions of its store."""

    def __init__(self, proxy: RunningProxy, engine: ServerProcess, base: Path, judge: Judge) -> None:
        self.proxy, self.engine, self.base, self.store = proxy, engine, base, proxy.store
        self.catalog = Catalog.open(proxy.store)
        self.config = trainer_config(
            judge, engine_urls=[engine.url], proxy_urls=[proxy.url], control_key=CONTROL_KEY, **LORA
        )

    def write(self, number: int, save: Any) -> Path:
        folder = version_path(self.store.folder, number)
        write_version(folder, save, version=number, parent=number - 1, **ENTRY)
        return folder

    def write_base(self, number: int) -> Path:
        return self.write(number, lambda aside: shutil.copytree(self.base, aside, dirs_exist_ok=True) and {})

    def write_round(self, number: int, seed: int) -> Path:
        learner = Learner(self.base, TrainerConfig(**LORA), reference=self.base)
        learner.train(make_samples(self.base, [(3, 9 + seed), (8, 5)]), fresh_version=0, seed=seed)
        return self.write(number, learner.save)

    def publish(self, number: int, **settings: Any) -> PublishReport:
        config = TrainerConfig.model_validate(self.config.model_dump() | {"publish": settings or NAMED})
        folder = version_path(self.store.folder, number)
        return serve(folder, self.catalog, self.store, config, Console(file=StringIO()))

    def call(self, session: str, **more: Any) -> CallRecord:
        body = {"model": "weir", "messages": [{"role": "user", "content": "Add."}], "max_tokens": 8} | more
        answer = self.proxy.post(f"/s/{session}/v1/chat/completions", body)
        assert answer.status_code == 200, answer.text
        return next(record for record in self.proxy.records() if record.session_id == session)

    def calls_until(self, end: threading.Event, session: str) -> list[CallRecord]:
        """Long calls, one after the other: a fast machine ends one before anything is published."""
        found = []
        while not end.is_set():
            found.append(self.call(f"{session}-{len(found)}", max_tokens=400, ignore_eos=True))
        return found


@pytest.fixture
def stack(tiny_model_dir: Path, tmp_path: Path, judge: Judge) -> Iterator[Stack]:
    base = shutil.copytree(tiny_model_dir, tmp_path / "base")
    engine = start_sglang(base, folder=tmp_path, arguments=FLAGS)
    settings: dict[str, Any] = {"adapter_name": "policy", "engine_check_s": 0.2}
    with (
        running_router([engine.url], tmp_path) as router,
        running_proxy(tmp_path / "store", base, router.url, **settings) as proxy,
    ):
        found = Stack(proxy, engine, base, judge)
        yield found
        found.catalog.close()
        found.engine.stop()


def expected(folder: Path, record: CallRecord) -> Any:
    prompt, output = (unpack_ids(packed).astype(np.int64)[None] for packed in (record.prompt_ids, record.output_ids))
    return pytest.approx(model_logprobs(folder, prompt, output)[0].tolist(), abs=1e-4)


def versions(record: CallRecord) -> list[str]:
    return [span.label for span in record.spans]


@needs_sglang
@pytest.mark.sglang
def test_sglang_serves_each_adapter_beside_its_base_and_records_name_its_version(stack: Stack, tmp_path: Path) -> None:
    body = {"model": "weir", "messages": [{"role": "user", "content": "Add."}], "max_tokens": 8}
    for stream in (False, True):  # it has no adapter yet
        refused = stack.proxy.post("/s/early/v1/chat/completions", body | {"stream": stream})
        assert "policy" in refused.text and "publish a version" in refused.text
        assert refused.status_code == 502

    base = stack.write_base(1)
    report = stack.publish(1)
    assert (report.serving, report.failed, report.ways) == ([stack.engine.url], {}, {stack.engine.url: "adapter"})
    record = stack.call("zero")
    assert (versions(record), unpack_logprobs(record.output_logprobs).tolist()) == (["1"], expected(base, record))

    second, third = stack.write_round(2, 0), stack.write_round(3, 4)
    assert stack.publish(2).serving == [stack.engine.url]
    record = stack.call("one")
    assert (versions(record), unpack_logprobs(record.output_logprobs).tolist()) == (["2"], expected(second, record))
    assert unpack_logprobs(record.output_logprobs).tolist() != expected(base, record)
    findings = exactness_findings(stack.engine.url, second, "float32", adapter_name="policy")
    assert [finding.verdict for finding in findings] == [Verdict.OK] * 3, findings
    assert published(second) == adapter_folder(second)
    assert verify(adapter_folder(second)).version == 2
    weights = (second / "model.safetensors").stat().st_size
    assert sum(file.stat().st_size for file in adapter_folder(second).iterdir()) < weights / 2

    with ThreadPoolExecutor(3) as threads:  # a call that is under way continues with the next adapter
        published_third = threading.Event()
        calling = [threads.submit(stack.calls_until, published_third, f"long-{each}") for each in range(3)]
        time.sleep(1.0)
        try:
            report = stack.publish(3)
        finally:
            published_third.set()
        found = [versions(record) for each in calling for record in each.result(120)]
    assert report.serving == [stack.engine.url] and ["2", "3"] in found, found
    record = stack.call("two")
    assert (versions(record), unpack_logprobs(record.output_logprobs).tolist()) == (["3"], expected(third, record))

    port = stack.engine.port  # killed and started again, it gets its adapter before calls go to it
    stack.engine.stop()
    stack.engine = start_sglang(stack.base, folder=tmp_path, arguments=FLAGS, port=port)
    record = stack.call("again")
    assert (versions(record), unpack_logprobs(record.output_logprobs).tolist()) == (["3"], expected(third, record))

    with pytest.raises(PublishFailed, match=r"proxy.adapter_name = 'policy'.*ask for None.*unset it"):
        stack.publish(2, form="stored")
    with pytest.raises(PublishFailed, match="serves version 3 and no adapter 'other'"):
        stack.publish(2, form="adapter", adapter_name="other")
    record = stack.call("still")
    assert (versions(record), unpack_logprobs(record.output_logprobs).tolist()) == (["3"], expected(third, record))

    stack.write(4, lambda aside: make_tiny_model(aside, seed=9) and None)
    with pytest.raises(PublishFailed, match="as this machine sees it, are not the base of the adapter: restart it on"):
        stack.publish(4)
    unloaded = httpx.post(f"{stack.engine.url}/unload_lora_adapter", json={"lora_name": "policy"}, timeout=60)
    assert unloaded.json()["success"], unloaded.text
    with pytest.raises(PublishFailed, match="no adapter 'policy', so that its base may have been changed"):
        stack.publish(2)
    prune(stack.store.folder, 2)
    assert not second.exists() and not other_forms(second) and third.exists()


def test_an_engine_that_serves_no_adapters_is_left_out_with_the_remedy(
    tiny_model_dir: Path, store: StoreConfig, judge: Judge, tmp_path: Path
) -> None:
    engine = start_engine(tiny_model_dir, folder=tmp_path)
    catalog = Catalog.open(store)
    config = trainer_config(judge, engine_urls=[engine.url], publish=NAMED, **LORA)
    folder = version_path(store.folder, 1)
    write_version(
        folder,
        lambda aside: shutil.copytree(tiny_model_dir, aside, dirs_exist_ok=True) and {},
        version=1,
        parent=0,
        **ENTRY,
    )
    with pytest.raises(PublishFailed, match=r"serves no adapters .*restart it on .* with --enable-lora"):
        serve(folder, catalog, store, config, Console(file=StringIO()))
    catalog.close()
    engine.stop()


def test_settings_that_contradict_each_other_are_refused(judge: Judge) -> None:
    with pytest.raises(ValidationError, match="form = adapter is of folders that engines read"):
        trainer_config(judge, publish=NAMED | {"way": "tensor"}, **LORA)
    with pytest.raises(ValidationError, match="set lora_rank"):
        trainer_config(judge, publish=NAMED)
