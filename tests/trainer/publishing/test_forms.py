"""A version published in float8: the engine computes with the quantised weights, and the record's logprobs show it."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from rich.console import Console
from safetensors.torch import load_file, save_file
from support_calls import PROMPT, generate, logprobs_of, versions_of
from support_model import make_tiny_model
from support_rounds import Judge, model_logprobs, trainer_config
from support_scripted_proxy import KEY, scripted_proxy
from support_servers import ServerProcess, start_engine

from weir.engine.weights import SCALE, checksums, dequantised, load_model, model_version
from weir.scripts.cli.doctor.exactness import exactness_findings
from weir.store.catalog.catalog import Catalog
from weir.store.config import StoreConfig
from weir.store.version_forms import fp8_folder, loaded_by_engines
from weir.trainer.publishing.catalog_entries import serve
from weir.trainer.publishing.publish import PublishReport
from weir.trainer.settings.publishing import PublishConfig
from weir.trainer.versions.stored import prune
from weir.trainer.versions.version_folder import verify, version_path, write_version

WEIGHTS = "model.safetensors"


class Publisher:
    def __init__(self, proxy: str, store: StoreConfig, judge: Judge, engine: ServerProcess) -> None:
        self.store, self.catalog = store, Catalog.open(store)
        self.config = trainer_config(judge, engine_urls=[engine.url], proxy_urls=[proxy], control_key=KEY)

    def write(self, number: int) -> Path:
        folder = version_path(self.store.folder, number)
        settings: dict[str, Any] = {"parent": number - 1, "round_id": None, "config_hash": "", "seed": 0, "groups": []}
        write_version(folder, lambda aside: make_tiny_model(aside, seed=number) and None, version=number, **settings)
        return folder

    def publish(self, number: int, form: str) -> PublishReport:
        config = self.config.model_copy(update={"publish": PublishConfig.model_validate({"form": form})})
        folder = version_path(self.store.folder, number)
        return serve(folder, self.catalog, self.store, config, Console(file=StringIO()))


@pytest.fixture(scope="module")
def engine(tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    found = start_engine(tiny_model_dir, folder=tmp_path_factory.mktemp("engine"))
    yield found
    found.stop()


@pytest.fixture
def publisher(engine: ServerProcess, store: StoreConfig, judge: Judge) -> Iterator[Publisher]:
    with scripted_proxy() as proxy:
        publisher = Publisher(proxy.url, store, judge, engine)
        yield publisher
        publisher.catalog.close()


def plain_copy(folder: Path, target: Path) -> Path:
    """The quantised weights of a folder as a plain one in float32, made by hand."""
    shutil.copytree(folder, target)
    held = load_file(folder / WEIGHTS)
    factors = {name: held.pop(name) for name in [name for name in held if name.endswith(SCALE)]}
    assert factors
    in_float8 = {name for name, tensor in held.items() if tensor.dtype == torch.float8_e4m3fn}
    assert in_float8 == {name.removesuffix(SCALE) for name in factors}
    plain = {name: dequantised(name, held[name], factors) if name in in_float8 else held[name] for name in held}
    save_file(plain, target / WEIGHTS, metadata={"format": "pt"})
    config = re.sub(r',\s*"quantization_config": \{.*?\}', "", (folder / "config.json").read_text(), flags=re.DOTALL)
    (target / "config.json").write_text(config)
    return target


def median(url: str, folder: Path) -> float:
    """Of what `weir doctor --exactness` says of an engine and a folder, in nats."""
    seen = next(one.seen for one in exactness_findings(url, folder, "float32") if "logprobs" in one.what)
    match = re.match(r"p50 ([\d.e+-]+),", seen)
    assert match is not None, seen
    return float(match[1])


def test_the_engine_computes_with_the_quantised_weights_and_the_differences_show_it(
    engine: ServerProcess, publisher: Publisher, tmp_path: Path
) -> None:
    folder = publisher.write(1)
    publisher.publish(1, "stored")
    stored, sums = logprobs_of(generate(engine)), engine.post("/weights_checker")["ranks"]
    assert engine.get("/server_info")["quantization"] is None

    report = publisher.publish(1, "fp8")
    assert (report.serving, report.failed) == ([engine.url], {})
    quantised = fp8_folder(folder)
    assert loaded_by_engines(folder) == quantised
    assert verify(quantised).version == 1
    assert engine.get("/server_info")["quantization"] == "fp8"
    answer = generate(engine)
    assert set(versions_of(answer)) == {"1"}
    plain = plain_copy(quantised, tmp_path / "plain")
    expected = model_logprobs(plain, np.array([PROMPT]), np.array([answer["output_ids"]]))[0]
    assert logprobs_of(answer) == pytest.approx(expected.tolist(), abs=1e-4)
    assert logprobs_of(answer) != pytest.approx(stored, abs=1e-4)
    by_trainer, by_hand = median(engine.url, folder), median(engine.url, plain)
    assert 100 * by_hand < by_trainer
    assert by_hand < 1e-4

    made_ns = (quantised / WEIGHTS).stat().st_mtime_ns
    publisher.publish(1, "fp8")
    assert (quantised / WEIGHTS).stat().st_mtime_ns == made_ns  # it was there
    publisher.publish(1, "stored")
    assert not quantised.exists()
    assert loaded_by_engines(folder) == folder
    assert engine.post("/weights_checker")["ranks"] == sums


def test_damaged_folders_are_made_again_and_old_ones_deleted_and_an_engine_starts_on_one(
    engine: ServerProcess, publisher: Publisher
) -> None:
    first, second = publisher.write(1), publisher.write(2)
    publisher.publish(1, "fp8")
    content = (fp8_folder(first) / WEIGHTS).read_bytes()
    (fp8_folder(first) / WEIGHTS).write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    publisher.publish(1, "fp8")
    assert (fp8_folder(first) / WEIGHTS).read_bytes() == content
    publisher.publish(2, "fp8")
    sums = engine.post("/weights_checker")["ranks"][0]["checksums"]
    prune(publisher.store.folder, keep=10, below=1)
    assert fp8_folder(first).exists()
    prune(publisher.store.folder, keep=10)
    assert first.exists() and not fp8_folder(first).exists() and fp8_folder(second).exists()
    started = load_model(fp8_folder(second), dtype=torch.float32, device=torch.device("cpu"))
    assert checksums(dict(started.state_dict(keep_vars=True))) == sums
    assert model_version(fp8_folder(second)) == "2"


def test_other_ways_than_by_folder_are_refused() -> None:
    with pytest.raises(ValidationError, match="set way = disk instead of tensor"):
        PublishConfig.model_validate({"form": "fp8", "way": "tensor"})
