"""Series of rounds: the numbers of their metrics, and what follows from two rounds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from weir.store.catalog.catalog import Catalog
from weir.store.catalog.leases import take_lease
from weir.store.config import StoreConfig
from weir.ui.data.curves import curves_of_catalog


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    catalog = Catalog.open(StoreConfig(root=tmp_path / "store"))
    yield catalog
    catalog.close()


def series(catalog: Catalog, *rounds: dict[str, Any]) -> dict[str, list[float | None]]:
    """The series of these metrics, a round each."""
    lease = take_lease(catalog, "rounds", "test", 60.0)
    for number, metrics in enumerate(rounds, 1):
        catalog.claim_groups(number, [], {"round": number, "groups": []}, lease)
        catalog.commit_round(number, number, metrics, lease)
    found: dict[str, list[float | None]] = curves_of_catalog(catalog, "x")["series"]
    return found


def test_numbers_have_the_names_of_their_places_and_lists_and_texts_are_none(catalog: Catalog) -> None:
    metrics = {"loss": 1, "fast_p": {"1.5": 0.25}, "stop": "kl", "steps": [{"loss": 3}], "is_first": True}
    assert series(catalog, metrics, {"loss": 2.0}) == {"loss": [1.0, 2.0], "fast_p.1.5": [0.25, None]}


def test_the_idle_share_is_the_wait_between_two_rounds_over_the_time_since_the_first(catalog: Catalog) -> None:
    first = {"timeline": [["claim", 100.0, 1.0], ["train", 101.0, 9.0]]}  # until 110
    second = {"timeline": [["publish", 128.0, 2.0], ["claim", 115.0, 1.0]]}  # 115 to 130
    at_once = {"timeline": [["train", 129.0, 11.0]]}  # began while the round before published
    found = series(catalog, first, second, at_once, {"loss": 1.0})
    assert found["idle_share"] == [None, 0.25, 0.0, None]


def test_the_length_of_a_sample_needs_samples(catalog: Catalog) -> None:
    found = series(catalog, {"samples": 4, "output_tokens": 10}, {"samples": 0, "output_tokens": 0})
    assert found["output_tokens_per_sample"] == [2.5, None]
