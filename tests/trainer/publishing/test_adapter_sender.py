"""The adapter of a LoRA round is sent alone, and the engines' weights are then those of the version's folder."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import nullcontext
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console
from support_calls import PROMPT, generate, logprobs_of, versions_of
from support_model import make_tiny_model
from support_rounds import Judge, trainer_config
from support_samples import make_samples
from support_scripted_proxy import KEY, scripted_proxy
from support_servers import ServerProcess, start_engine
from transformers import AutoModelForCausalLM
from typer.testing import CliRunner

from weir.scripts.cli.main import app
from weir.store.catalog.catalog import Catalog
from weir.store.config import StoreConfig
from weir.trainer.credit.samples import Sample
from weir.trainer.learner.learner import Learner
from weir.trainer.learner.scoring import score
from weir.trainer.publishing.catalog_entries import serve
from weir.trainer.publishing.publish import PublishReport
from weir.trainer.settings.config import TrainerConfig
from weir.trainer.settings.publishing import PublishConfig
from weir.trainer.versions.version_folder import ADAPTER_BASE, read_manifest, version_path, write_version

SETTINGS: dict[str, Any] = {"device": "cpu", "lora_rank": 4, "lora_alpha": 8.0, "lr": 2e-2}
ENTRY: dict[str, Any] = {"round_id": None, "config_hash": "", "seed": 0, "groups": []}


@pytest.fixture(scope="module")
def engines(tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[ServerProcess]]:
    """One that computes in float32, on the base's folder, and one in bfloat16, on a copy of it."""
    folder = tmp_path_factory.mktemp("engines")
    copy = shutil.copytree(tiny_model_dir, folder / "copy")
    found = [
        start_engine(tiny_model_dir, folder=folder),
        start_engine(copy, folder=folder, arguments=("--dtype", "bfloat16")),
    ]
    yield found
    for engine in found:
        engine.stop()


class Publisher:
    def __init__(self, proxy: str, store: StoreConfig, judge: Judge, engines: list[ServerProcess]) -> None:
        self.store, self.catalog = store, Catalog.open(store)
        self.urls = [engine.url for engine in engines]
        self.config = trainer_config(judge, engine_urls=self.urls, proxy_urls=[proxy], control_key=KEY)
        self.said = StringIO()

    def write(self, number: int, write_files: Any) -> Path:
        folder = version_path(self.store.folder, number)
        write_version(folder, write_files, version=number, parent=number - 1, **ENTRY)
        return folder

    def publish(self, number: int, way: str) -> PublishReport:
        publish = PublishConfig.model_validate({"way": way, "bucket_mb": 1})
        config = self.config.model_copy(update={"publish": publish})
        folder = version_path(self.store.folder, number)
        return serve(folder, self.catalog, self.store, config, Console(file=self.said, width=400))


@pytest.fixture
def publisher(engines: list[ServerProcess], store: StoreConfig, judge: Judge) -> Iterator[Publisher]:
    with scripted_proxy() as proxy:
        publisher = Publisher(proxy.url, store, judge, engines)
        yield publisher
        publisher.catalog.close()


def sums(engines: list[ServerProcess]) -> list[Any]:
    return [engine.post("/weights_checker")["ranks"] for engine in engines]


def trained(base: Path, **more: Any) -> Learner:
    found = Learner(base, TrainerConfig(**(SETTINGS | more)), reference=base)
    found.train(make_samples(base, [(3, 9), (8, 5)]), fresh_version=0, seed=0)
    return found


def own_logprobs(found: Learner, ids: list[int], *, averaged: bool) -> list[float]:
    """Of an answer to PROMPT, by the trainer's forward pass, with its adapters beside the frozen weights."""
    sample = Sample(
        call_id="c",
        group_id="g",
        prompt_ids=np.array(PROMPT, np.int32),
        output_ids=np.array(ids, np.int32),
        old_logprobs=np.zeros(len(ids), np.float32),
        versions=np.ones(len(ids), np.int32),
        temperature=1.0,
        advantage=0.0,
    )
    average = found.stepper.average
    with average.in_place() if averaged and average is not None else nullcontext():
        scores = score(found.model, [sample], found.config, found.device, found.ranks)
    return [float(logprob) for logprob in scores["c"]]


@pytest.mark.parametrize("published", ["stepped", "averaged"])
def test_an_engine_computes_with_the_adapter_what_the_trainer_does_and_names_its_version(
    published: str, tiny_model_dir: Path, engines: list[ServerProcess], publisher: Publisher
) -> None:
    more = {"ema": 0.5, "published_weights": "averaged"} if published == "averaged" else {}
    found = trained(tiny_model_dir, **more)
    folder = publisher.write(1, found.save)
    publisher.write(2, lambda aside: make_tiny_model(aside, seed=2) and None)
    publisher.publish(1, "disk")
    expected = sums(engines)
    publisher.publish(2, "disk")
    assert sums(engines) != expected

    report = publisher.publish(1, "adapter")
    assert report.ways == dict.fromkeys(publisher.urls, "adapter")
    assert (report.serving, report.failed, report.fallbacks) == (publisher.urls, {}, {})
    assert sums(engines) == expected
    assert 0 < report.bytes_sent < 2 * 0.3 * (folder / "model.safetensors").stat().st_size  # to two engines
    answer = generate(engines[0])
    assert set(versions_of(answer)) == {"1"}
    own = own_logprobs(found, answer["output_ids"], averaged=published == "averaged")
    assert logprobs_of(answer) == pytest.approx(own, abs=1e-4)


def test_what_cannot_be_merged_arrives_whole_and_the_report_says_why(
    tiny_model_dir: Path, engines: list[ServerProcess], publisher: Publisher
) -> None:
    publisher.write(1, lambda aside: make_tiny_model(aside, seed=2) and None)
    report = publisher.publish(1, "adapter")
    assert report.ways == dict.fromkeys(publisher.urls, "tensor")
    assert all("no LoRA round made it" in why for why in report.fallbacks.values())

    def of_another_base(aside: Path) -> None:
        trained(tiny_model_dir).save(aside)
        named = json.loads((aside / ADAPTER_BASE).read_text())
        named["files"]["model.safetensors"] = "0" * 64
        (aside / ADAPTER_BASE).write_text(json.dumps(named))

    publisher.write(2, of_another_base)
    report = publisher.publish(2, "adapter")
    assert report.ways == dict.fromkeys(publisher.urls, "tensor")
    assert "the adapter's base is not here" in report.fallbacks[publisher.urls[0]]
    assert "got version 2 by tensor" in publisher.said.getvalue()
    assert [engine.get("/model_info")["weight_version"] for engine in engines] == ["2", "2"]


def test_the_adapter_of_a_version_is_written_as_peft_reads_it(
    tiny_model_dir: Path, store: StoreConfig, publisher: Publisher, tmp_path: Path
) -> None:
    from peft import PeftModel

    folder = publisher.write(1, trained(tiny_model_dir).save)
    assert ADAPTER_BASE in read_manifest(folder).files
    command = ["versions", "export", "1", str(tmp_path / "adapter"), "--adapter", "--root", str(store.root)]
    assert CliRunner().invoke(app, command).exit_code == 0
    base: Any = AutoModelForCausalLM.from_pretrained(tiny_model_dir, dtype=torch.float32)
    merged: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    ids = torch.tensor([PROMPT])
    plain = base(ids).logits
    with_adapter = PeftModel.from_pretrained(base, tmp_path / "adapter")(input_ids=ids).logits
    assert torch.allclose(with_adapter, merged(ids).logits, atol=1e-5)
    assert (with_adapter - plain).abs().max() > 1e-3
