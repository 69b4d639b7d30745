"""Which engines sleep, who holds their devices, and what changes of hands cost."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from weir.store.catalog.catalog import Catalog
from weir.store.catalog.devices.switches import (
    LEARNED_FROM,
    AsleepEngine,
    SwitchRow,
    add_switch,
    asleep_engines,
    expected_s,
    hold,
    let_go,
    process_of,
    put_to_sleep,
    switches,
    wake_up,
)
from weir.store.config import StoreConfig


@pytest.fixture
def catalog(config: StoreConfig) -> Iterator[Catalog]:
    catalog = Catalog.open(config)
    yield catalog
    catalog.close()


def engine(url: str, *, process: str = "1", version: str = "0", held_until_us: int = 0) -> AsleepEngine:
    return AsleepEngine(
        url=url,
        member="gpu",
        process=process,
        model_path="/model",
        weight_version=version,
        held_until_us=held_until_us,
    )


def test_what_an_engine_served_before_it_fell_asleep_stays_until_its_process_ends(catalog: Catalog) -> None:
    put_to_sleep(catalog, engine("a", version="3"))
    put_to_sleep(catalog, engine("b", version="3"))
    put_to_sleep(catalog, engine("a", version="garbage"))  # asked again while it sleeps
    put_to_sleep(catalog, engine("b", version="4", process="2"))  # started since
    found = asleep_engines(catalog)
    assert {url: row.weight_version for url, row in found.items()} == {"a": "3", "b": "4"}
    wake_up(catalog, ["a"])
    assert list(asleep_engines(catalog)) == ["b"]


def test_devices_are_held_until_they_are_let_go(catalog: Catalog) -> None:
    put_to_sleep(catalog, engine("a"))
    assert not asleep_engines(catalog)["a"].is_held
    hold(catalog, "another")
    assert not asleep_engines(catalog)["a"].is_held
    hold(catalog, "gpu")
    assert asleep_engines(catalog)["a"].is_held
    let_go(catalog, "gpu")
    assert not asleep_engines(catalog)["a"].is_held


def test_the_expected_cost_is_the_median_of_the_last_ones_that_succeeded(catalog: Catalog) -> None:
    assert expected_s(catalog, "gpu", "train") is None
    costs = [100.0] * 3 + [float(number) for number in range(1, LEARNED_FROM + 1)]
    rows = [
        SwitchRow(member="gpu", side="train", began_us=1, seconds=s, steps={"in": s}, freed_bytes=7, error=None)
        for s in costs
    ]
    failed = SwitchRow(member="gpu", side="train", began_us=1, seconds=900.0, steps={}, freed_bytes=None, error="died")
    for row in [*rows, failed]:
        add_switch(catalog, row)
    assert expected_s(catalog, "gpu", "train") == 4.5  # of 1 to 8
    assert expected_s(catalog, "gpu", "rollout") is None
    assert switches(catalog) == [*rows, failed]


def test_a_process_is_known_by_its_start_or_by_the_seed_that_it_drew() -> None:
    assert process_of({"startup_time": 12.5, "random_seed": 3}) == "12.5"
    assert process_of({"random_seed": 3}) == "3"
    assert process_of({}) is None
    assert engine("a", process="12.5").is_process({"startup_time": 12.5})
    assert not engine("a", process="12.5").is_process({"startup_time": 13.0})
