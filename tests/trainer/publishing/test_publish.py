"""Publishing to real engines behind a scripted proxy: which serve, which are left out, and that gates open again."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support_model import make_tiny_model
from support_rounds import Judge, add_group, trainer_config
from support_scripted_proxy import KEY, Proxy, scripted_proxy
from support_servers import EngineFactory, ServerProcess, find_free_port

from weir.store.catalog import schema as t
from weir.store.catalog.proxies import LEASE_S, seen_proxy
from weir.store.config import StoreConfig
from weir.trainer.errors import PublishFailed
from weir.trainer.publishing import gates
from weir.trainer.publishing.publish import publish
from weir.trainer.trainer import Trainer


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    with scripted_proxy() as running:
        yield running


def served_version(engine: ServerProcess) -> str:
    return str(engine.get("/model_info")["weight_version"])


def answers(engine: ServerProcess) -> bool:
    """Whether the engine generates: a paused one lets the call wait."""
    body = {"input_ids": [10, 11, 12], "sampling_params": {"temperature": 0.0, "max_new_tokens": 2}}
    return len(engine.post("/generate", body)["output_ids"]) > 0


def test_a_round_is_served_by_every_engine_and_read_back(
    tiny_model_dir: Path, store: StoreConfig, judge: Judge, proxy: Proxy, engine_server: EngineFactory
) -> None:
    engines = [engine_server(), engine_server()]
    urls = [engine.url for engine in engines]
    config = trainer_config(judge, engine_urls=urls, proxy_urls=[proxy.url], control_key=KEY)
    add_group(store, tiny_model_dir, "g1", [0.0, 1.0])
    trainer = Trainer(config, store, model_path=tiny_model_dir)
    report = trainer.run_round()
    assert report is not None
    assert (report.published.serving, report.published.failed) == (urls, {})
    assert [served_version(engine) for engine in engines] == ["1", "1"]
    assert [path for path, _ in proxy.told] == ["/weir/pause", "/weir/resume"]
    assert proxy.gate == "open"
    assert all(answers(engine) for engine in engines)
    row = next(row for row in trainer.catalog.versions() if row.version == 1)
    assert row.published_us is not None
    assert row.engines == urls
    trainer.close()


def test_an_engine_that_refuses_the_weights_is_left_out_and_named(
    tiny_model_dir: Path, tmp_path: Path, store: StoreConfig, judge: Judge, proxy: Proxy, engine_server: EngineFactory
) -> None:
    other = make_tiny_model(tmp_path / "other", vocab_size=400, seed=0)
    good, bad = engine_server(), engine_server(other)
    config = trainer_config(judge, engine_urls=[good.url, bad.url], proxy_urls=[proxy.url], control_key=KEY)
    add_group(store, tiny_model_dir, "g1", [0.0, 1.0])
    trainer = Trainer(config, store, model_path=tiny_model_dir)
    report = trainer.run_round()
    assert report is not None
    assert report.published.serving == [good.url]
    assert list(report.published.failed) == [bad.url]
    assert (served_version(good), served_version(bad)) == ("1", "0")
    assert bad.get("/server_info")["weight_version"] == "0"
    assert proxy.gate == "open"
    assert answers(good)
    trainer.close()


def test_when_no_engine_loads_all_go_on_and_the_round_stays_committed(
    tiny_model_dir: Path, tmp_path: Path, store: StoreConfig, judge: Judge, proxy: Proxy, engine_server: EngineFactory
) -> None:
    engine = engine_server(make_tiny_model(tmp_path / "other", vocab_size=400, seed=0))
    config = trainer_config(judge, engine_urls=[engine.url], proxy_urls=[proxy.url], control_key=KEY)
    add_group(store, tiny_model_dir, "g1", [0.0, 1.0])
    trainer = Trainer(config, store, model_path=tiny_model_dir)
    with pytest.raises(PublishFailed, match="no engine serves version 1"):
        trainer.run_round()
    assert proxy.gate == "open"
    assert answers(engine)
    assert served_version(engine) == "0"
    assert trainer.catalog.rounds()[0].state == "committed"
    trainer.close()


def test_publishing_again_reaches_an_engine_that_was_away(
    tiny_model_dir: Path, store: StoreConfig, judge: Judge, engine_server: EngineFactory
) -> None:
    add_group(store, tiny_model_dir, "g1", [0.0, 1.0])
    away = trainer_config(judge, engine_urls=[f"http://127.0.0.1:{find_free_port()}"])
    trainer = Trainer(away, store, model_path=tiny_model_dir)
    with pytest.raises(PublishFailed):
        trainer.run_round()
    trainer.close()
    engine = engine_server()
    back = Trainer(trainer_config(judge, engine_urls=[engine.url]), store, model_path=tiny_model_dir)
    assert back.run_round() is None  # no group is left, but the version was still to be published
    assert served_version(engine) == "1"
    back.close()


def test_a_proxy_that_refuses_to_close_its_gate_stops_the_publish_and_opens_the_others(
    tiny_model_dir: Path, store: StoreConfig, judge: Judge, proxy: Proxy, engine_server: EngineFactory
) -> None:
    engine = engine_server()
    add_group(store, tiny_model_dir, "g1", [0.0, 1.0])
    trainer = Trainer(trainer_config(judge), store, model_path=tiny_model_dir)
    report = trainer.run_round()
    assert report is not None
    with scripted_proxy() as second:
        second.refuses = "/weir/pause"
        config = trainer_config(judge, engine_urls=[engine.url], proxy_urls=[proxy.url, second.url], control_key=KEY)
        with pytest.raises(PublishFailed, match="did not close its gate"):
            publish(report.path, 1, config, KEY, trainer.catalog)
    assert proxy.gate == "open"
    assert served_version(engine) == "0"
    assert answers(engine)
    trainer.close()


def test_proxies_that_live_in_the_catalog_close_and_open_with_the_named_ones_and_dead_ones_are_left_out(
    tiny_model_dir: Path, store: StoreConfig, judge: Judge, proxy: Proxy, engine_server: EngineFactory
) -> None:
    engine = engine_server()
    config = trainer_config(judge, engine_urls=[engine.url], proxy_urls=[proxy.url], control_key=KEY)
    add_group(store, tiny_model_dir, "g1", [0.0, 1.0])
    trainer = Trainer(config, store, model_path=tiny_model_dir)
    nobody = f"http://127.0.0.1:{find_free_port()}"
    with scripted_proxy() as listed:
        for proxy_id, url in (("a", listed.url), ("b", listed.url), ("c", proxy.url), ("d", nobody)):
            seen_proxy(trainer.catalog, proxy_id, url=url, writer=proxy_id)
        almost_dead = time.time_ns() // 1000 - int((LEASE_S - 1) * 1e6)
        with trainer.catalog.writing().begin() as connection:
            connection.execute(t.proxies.update().where(t.proxies.c.proxy_id == "d").values(seen_us=almost_dead))
        report = trainer.run_round()
        assert report is not None and report.published.serving == [engine.url]
        for each in (proxy, listed):
            assert each.told == [
                ("/weir/pause", {"mode": "continue", "lease_s": gates.LEASE_S}),
                ("/weir/resume", {"weight_version": 1}),
            ]
    trainer.close()


def test_the_trainer_finds_the_engines_logprobs_again(
    tiny_model_dir: Path, store: StoreConfig, judge: Judge, engine_server: EngineFactory
) -> None:
    """Calls sampled by a real engine at two temperatures: trainer and engine agree to 1e-4 on every token."""
    from support_rounds import add_sessions, make_record

    engine = engine_server()
    sessions = []
    for i in range(6):
        sampling = {"temperature": 1.0 if i % 2 else 0.8, "top_p": 1.0, "top_k": -1, "max_new_tokens": 24}
        prompt = list(range(20 + i, 30 + 2 * i))
        asked = {"input_ids": prompt, "sampling_params": sampling | {"ignore_eos": True}, "return_logprob": True}
        answer = engine.post("/generate", asked)
        told = [logprob for logprob, _, _ in answer["meta_info"]["output_token_logprobs"]]
        text = f"reward={i % 2}"
        record = make_record(f"c{i}", f"s{i}", "g", prompt, answer["output_ids"], told, text=text, sampling=sampling)
        sessions.append([record])
    add_sessions(store, "g", sessions)
    trainer = Trainer(trainer_config(judge), store, model_path=tiny_model_dir)
    report = trainer.run_round()
    assert report is not None
    assert report.metrics["fresh_tokens"] == 6 * 24
    assert report.metrics["fresh_logprob_diff_max"] < 1e-4
    trainer.close()
