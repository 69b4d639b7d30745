"""A version from two training ranks to embedded engines, beside the same version from one process.

Both go over sockets, as to other machines: `ranks` is `publish.by_ranks`, where each rank sends what it owns in a group
of its own; `one_process` sends what it reads of the folder. Ranks hold the version as after a round, without training.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from weir.scripts.bench.publish.reports import figures_of
from weir.store.catalog.catalog import Catalog
from weir.store.config import StoreConfig
from weir.trainer.learner.torchrun import TorchrunLearner
from weir.trainer.publishing.publish import PublishReport, publish
from weir.trainer.settings.config import TrainerConfig
from weir.trainer.settings.publishing import PublishConfig

NUM_RANKS = 2
BUCKET_MB = 1


def by_ranks(model: Path, root: Path, urls: list[str], rounds: int) -> dict[str, float]:
    """The figures of a model in float32 that engines serve, with a new store at `root`; prints a line for each.

    Raises RuntimeError where an engine does not serve a version, or no rank sent it.
    """
    num_bytes = sum(file.stat().st_size for file in model.glob("*.safetensors"))
    ranks = TorchrunLearner(model, TrainerConfig(processes=NUM_RANKS, device="cpu"))
    taken: dict[str, list[PublishReport]] = {"ranks": [], "one_process": []}
    try:
        catalog = Catalog.open(StoreConfig(root=root))
        for number in range(rounds + 1):
            for version, (name, reports) in enumerate(taken.items(), start=2 * number + 1):
                report = _publish(model, version, urls, catalog, ranks if name == "ranks" else None)
                if number:  # the first of each also pays for imports
                    reports.append(report)
        catalog.close()
    finally:
        ranks.close()
    figures: dict[str, float] = {
        "ranks": NUM_RANKS,
        "ranks_engines": len(urls),
        "ranks_model_mb": round(num_bytes / 1e6, 1),
    }
    for name, reports in taken.items():
        figures |= figures_of(f"by_{name}", reports, num_bytes)
    return figures


def _publish(
    folder: Path, version: int, urls: list[str], catalog: Catalog, ranks: TorchrunLearner | None
) -> PublishReport:
    settings: dict[str, Any] = {"way": "distributed", "shared_memory": False, "bucket_mb": BUCKET_MB}
    config = TrainerConfig(engine_urls=urls, publish=PublishConfig(**settings, by_ranks=ranks is not None))
    report = publish(folder, version, config, None, catalog, ranks=ranks)
    if report.failed or report.fallbacks or report.num_sending_ranks != (NUM_RANKS if ranks is not None else 0):
        raise RuntimeError(f"the version went another way: {report.failed | report.fallbacks}")
    return report
