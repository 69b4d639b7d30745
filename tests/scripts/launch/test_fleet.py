"""The servers that a run's settings describe."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from support_router import running_router
from support_servers import EngineFactory, find_free_port

from weir.scripts.launch.errors import UsageError
from weir.scripts.launch.fleet import check_ports, fleet, server_addresses
from weir.scripts.launch.resolve import trainer_config
from weir.scripts.launch.settings import check_several, load_settings
from weir.store.config import StoreConfig
from weir.trainer.versions.version_folder import version_path, write_version


def settings_of(tmp_path: Path, text: str) -> tuple[Path, object]:
    file = tmp_path / "weir.toml"
    file.write_text(f'[store]\nroot = "{tmp_path / "store"}"\n{text}')
    return file, load_settings(file)


def test_engines_listen_in_a_row_with_seeds_and_ledgers_of_their_own(tmp_path: Path) -> None:
    file, settings = settings_of(
        tmp_path, '[model]\npath = "m"\n[engine]\ncount = 2\nport = 4000\nseed = 7\nledger = "l"\n'
    )
    servers = fleet(settings, file)  # type: ignore[arg-type]
    assert [server.name for server in servers] == [
        *("engine-0", "engine-1", "sglang-router", "proxy", "kernel-eval", "compactor", "ui")
    ]
    first, second = (" ".join(server.argv) for server in servers[:2])
    assert "--model m --port 4000" in first and "--seed 7 --ledger l.0" in first
    assert "--model m --port 4001" in second and "--seed 8 --ledger l.1" in second
    assert "--worker-urls http://127.0.0.1:4000 http://127.0.0.1:4001" in " ".join(servers[2].argv)


def test_the_ledger_of_one_engine_is_the_file_that_the_settings_name(tmp_path: Path) -> None:
    file, settings = settings_of(tmp_path, '[model]\npath = "m"\n[engine]\nledger = "x.jsonl"\n')
    [engine] = [server for server in fleet(settings, file) if server.name == "engine-0"]  # type: ignore[arg-type]
    assert engine.argv[engine.argv.index("--ledger") + 1] == "x.jsonl"


def test_engines_start_on_the_form_of_the_newest_version_that_was_published(tmp_path: Path) -> None:
    file, settings = settings_of(tmp_path, "")
    written = {"version": 3, "parent": 2, "round_id": 3, "config_hash": "", "seed": 0, "groups": []}
    stored = write_version(version_path(tmp_path / "store", 3), lambda _: None, **written).path  # type: ignore[arg-type]
    for model in (stored, stored.with_name("00000003.fp8")):
        model.mkdir(exist_ok=True)
        engine, *_ = fleet(settings, file)  # type: ignore[arg-type]
        assert engine.argv[engine.argv.index("--model") + 1] == str(model)


def test_without_engines_of_its_own_neither_engine_nor_router_is_started(tmp_path: Path) -> None:
    file, settings = settings_of(tmp_path, "[engine]\ncount = 0\n")
    assert [server.name for server in fleet(settings, file)] == ["proxy", "kernel-eval", "compactor", "ui"]  # type: ignore[arg-type]


def test_engines_that_weir_train_starts_have_a_router_before_they_are_there(tmp_path: Path) -> None:
    file, settings = settings_of(tmp_path, '[engine]\ncount = 0\n[[cluster.members]]\nname = "both"\n')
    router, proxy, *_ = fleet(settings, file)  # type: ignore[arg-type]
    assert router.argv[router.argv.index("--worker-urls") + 1] == "--policy"
    assert proxy.ready_url is not None and proxy.ready_url.endswith("/healthz"), "without engines it is not ready"


def test_without_a_model_the_error_says_what_to_do(tmp_path: Path) -> None:
    file, settings = settings_of(tmp_path, "")
    with pytest.raises(UsageError, match=r"set it in weir\.toml .* or run `weir demo`"):
        fleet(settings, file)  # type: ignore[arg-type]


def test_a_port_that_another_process_has_is_named_by_its_setting(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        _, settings = settings_of(
            tmp_path, f"[engine]\ncount = 0\n[proxy]\nport = 0\n[kernel_eval]\nport = {port}\n[ui]\nport = 0\n"
        )
        words = rf"has the port of kernel_eval\.port \(127\.0\.0\.1:{port}\): if that is another `weir up`, stop it"
        with pytest.raises(UsageError, match=words):
            check_ports(settings)  # type: ignore[arg-type]
    check_ports(settings)  # type: ignore[arg-type]


def test_the_trainer_is_told_this_machines_servers_where_it_names_none(tmp_path: Path) -> None:
    _, settings = settings_of(tmp_path, "[engine]\ncount = 2\nport = 4000\n[proxy]\nport = 4100\n")
    config = trainer_config(settings)  # type: ignore[arg-type]
    assert config.engine_urls == ["http://127.0.0.1:4000", "http://127.0.0.1:4001"]
    assert config.proxy_urls == ["http://127.0.0.1:4100"]


def test_what_the_trainer_is_told_wins_even_when_it_is_nothing(tmp_path: Path) -> None:
    _, settings = settings_of(tmp_path, "[trainer]\nengine_urls = []\n")
    assert trainer_config(settings).engine_urls == []  # type: ignore[arg-type]


def test_a_router_that_is_not_installed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, settings = settings_of(tmp_path, '[model]\npath = "m"\n[router]\nkind = "smg"\n')
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"router\.kind = 'smg', but .* does not have it: install the package smg"):
        fleet(settings, file)  # type: ignore[arg-type]


def test_engines_behind_a_router_of_ones_own_are_found_without_being_named(
    tmp_path: Path, engine_server: EngineFactory
) -> None:
    engine = engine_server()
    with running_router([engine.url], tmp_path) as router:
        _, settings = settings_of(tmp_path, f'[engine]\ncount = 0\n[proxy]\nupstream_url = "{router.url}"\n')
        config = trainer_config(settings)  # type: ignore[arg-type]
        assert (config.engine_urls, config.router_url) == ([engine.url], router.url)
    _, settings = settings_of(tmp_path, f'[engine]\ncount = 0\n[proxy]\nupstream_url = "{engine.url}"\n')
    config = trainer_config(settings)  # type: ignore[arg-type]
    assert (config.engine_urls, config.router_url) == ([engine.url], None)


def test_where_nobody_answers_there_is_nobody_to_publish_to(tmp_path: Path) -> None:
    _, settings = settings_of(
        tmp_path, f'[engine]\ncount = 0\n[proxy]\nupstream_url = "http://127.0.0.1:{find_free_port()}"\n'
    )
    assert trainer_config(settings).engine_urls == []  # type: ignore[arg-type]


def test_the_page_is_told_where_engines_and_judge_are(tmp_path: Path) -> None:
    _, settings = settings_of(tmp_path, "[engine]\ncount = 2\nport = 4000\n[kernel_eval]\nport = 4100\n")
    found = server_addresses(settings)  # type: ignore[arg-type]
    assert found.engines == ("http://127.0.0.1:4000", "http://127.0.0.1:4001")
    assert found.judge == "http://127.0.0.1:4100"
    _, settings = settings_of(
        tmp_path, '[trainer]\nengine_urls = ["http://there:1"]\nkernel_eval_url = "http://judge:2"\n'
    )
    found = server_addresses(settings)  # type: ignore[arg-type]
    assert (found.engines, found.judge) == (("http://there:1",), "http://judge:2")


def test_several_stores_are_different_and_have_catalogs_of_their_own(tmp_path: Path) -> None:
    stores = [StoreConfig(root=tmp_path / name) for name in ("a", "b")]
    check_several(stores)
    with pytest.raises(UsageError, match="is named twice"):
        check_several([*stores, stores[0].at(f"{tmp_path}/../{tmp_path.name}/a")])
    shared = [StoreConfig(root=store.root, catalog_url="postgresql://x/y") for store in stores]
    check_several(shared[:1])
    with pytest.raises(UsageError, match=r"store\.catalog_url names one"):
        check_several(shared)
