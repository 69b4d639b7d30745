"""A publish whose engines are slow in every step: calls wait at the gate no longer than they may."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from support_loading_engine import loading_engine
from support_model import make_tiny_model
from support_scripted_proxy import KEY, scripted_proxy

from weir.store.catalog.catalog import Catalog
from weir.store.config import StoreConfig
from weir.trainer.errors import HoldTooShort, PublishFailed
from weir.trainer.publishing.publish import publish
from weir.trainer.settings.config import TrainerConfig

PAUSE = "/pause_generation"
STEPS_S = {PAUSE: 0.5, "/update_weights_from_disk": 0.8, "/model_info": 1.8, "/continue_generation": 1.8}


def test_all_steps_of_a_publish_together_hold_calls_no_longer_than_the_limit(
    store: StoreConfig, tmp_path: Path
) -> None:
    """Each of them is within it by itself."""
    make_tiny_model(tmp_path)
    catalog = Catalog.open(store)
    with loading_engine() as engine, scripted_proxy() as proxy:
        engine.slow_s = STEPS_S
        config = TrainerConfig(engine_urls=[engine.url], proxy_urls=[proxy.url], control_key=KEY)
        with contextlib.suppress(PublishFailed):
            publish(tmp_path, 1, config, KEY, catalog, hold_limit_s=2.0)
        assert proxy.gate == "open" and not engine.paused
        assert proxy.closed_s < 3.6, f"{sum(STEPS_S.values())} s without the limit"
    catalog.close()


def test_engines_that_are_not_paused_in_time_need_longer_than_calls_are_held(
    store: StoreConfig, tmp_path: Path
) -> None:
    make_tiny_model(tmp_path)
    catalog = Catalog.open(store)
    with loading_engine() as engine, scripted_proxy() as proxy:
        engine.slow_s = {PAUSE: 0.5}
        config = TrainerConfig(engine_urls=[engine.url], proxy_urls=[proxy.url], control_key=KEY)
        with pytest.raises(HoldTooShort, match="calls wait 1 s at most"):
            publish(tmp_path, 1, config, KEY, catalog, hold_limit_s=1.0)
        assert proxy.gate == "open" and engine.version == "0"
    catalog.close()
