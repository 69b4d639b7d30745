"""Old versions: what becomes of them after a publish."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

from rich.console import Console
from support_rounds import Judge, trainer_config
from support_staged import write_next

from weir.store.catalog.catalog import Catalog
from weir.store.config import StoreConfig
from weir.trainer.publishing.catalog_entries import delete_old_versions
from weir.trainer.versions.stored import make_whole


def test_a_damaged_delta_is_printed_and_its_version_stays_whole(
    tiny_model_dir: Path, store: StoreConfig, judge: Judge
) -> None:
    _, second, _ = (write_next(store, tiny_model_dir, number) for number in (1, 2, 3))
    make_whole(second.path)
    weights, delta = second.path / "model.safetensors", second.path / "model.safetensors.delta"
    content = delta.read_bytes()
    catalog, said = Catalog.open(store), StringIO()
    delta.write_bytes(content[:-1])
    assert delete_old_versions(catalog, store, trainer_config(judge), Console(file=said, width=1000)) == []
    assert f"old versions stay whole: version 2 cannot be rebuilt: {delta} is not what the manifest" in said.getvalue()
    assert weights.exists()
    delta.write_bytes(content)
    assert delete_old_versions(catalog, store, trainer_config(judge), Console(file=said)) == []
    assert not weights.exists()
    catalog.close()
