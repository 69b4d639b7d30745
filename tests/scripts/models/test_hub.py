"""`weir model get hf:ORG/NAME` as a command, from a hub of our own."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_hub import constants
from support_hub import COMMIT, Hub, running_hub

from weir.scripts.launch.errors import UsageError
from weir.scripts.models.hub import look_up, require_space
from weir.scripts.models.model_folder import GetFailed
from weir.scripts.models.sources import get_model

WEIGHTS = os.urandom(24_000_000)  # huggingface_hub writes pieces of 10 MiB

REPOSITORY = {
    "config.json": b'{"model_type": "qwen3"}',
    "tokenizer.json": b"{}",
    "model.safetensors": WEIGHTS,
    "pytorch_model.bin": b"the same weights again",
    "original/consolidated.safetensors": b"and again",
    ".gitattributes": b"",
    "README.md": b"",
}
WANTED = ["config.json", "model.safetensors", "tokenizer.json", "weir_source.json"]


@pytest.fixture
def hub() -> Iterator[Hub]:
    """A hub with the repository org/tiny."""
    with running_hub() as hub:
        hub.files |= {f"org/tiny/{name}": content for name, content in REPOSITORY.items()}
        yield hub


@pytest.fixture
def at_hub(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> Hub:
    """That hub as the endpoint of this process, which read HF_ENDPOINT when it imported huggingface_hub."""
    monkeypatch.setattr(constants, "ENDPOINT", hub.url)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", hub.url + "/{repo_id}/resolve/{revision}/{filename}")
    return hub


def start(hub: Hub, folder: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "weir.scripts.cli.main", "model", "get", "hf:org/tiny@main", str(folder)]
    environment = os.environ | {"HF_ENDPOINT": hub.url}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_what_weir_reads_of_a_repository_is_fetched_and_verified(at_hub: Hub, tmp_path: Path) -> None:
    folder, lines = tmp_path / "model", list[str]()
    assert get_model("hf:org/tiny", folder, lines.append)
    assert lines[0] == f"org/tiny at {COMMIT}: 3 files, 0.02 GB"
    assert sorted(path.name for path in folder.iterdir()) == WANTED
    assert (folder / "model.safetensors").read_bytes() == WEIGHTS
    assert json.loads((folder / "weir_source.json").read_text())["revision"] == COMMIT
    num_downloads = len(at_hub.starts)
    assert not get_model(f"hf:org/tiny@{COMMIT}", folder, lines.append)
    assert len(at_hub.starts) == num_downloads


def test_a_killed_download_continues_where_it_ended(hub: Hub, tmp_path: Path) -> None:
    folder, hub.stop_at = tmp_path / "model", 22_000_000
    killed = start(hub, folder)
    assert hub.stopped.wait(120)
    part = tmp_path / ".model.part"
    while not any(path.stat().st_size >= 10_000_000 for path in part.rglob("*") if path.is_file()):
        assert killed.poll() is None
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    assert not folder.exists()
    hub.stop_at = None
    hub.starts.clear()
    again = start(hub, folder)
    stdout, stderr = again.communicate()
    assert again.returncode == 0, stderr
    assert stdout == f"{folder}: hf:org/tiny@main\n"
    assert "model.safetensors: 24.0 MB, of which " in stderr
    assert (folder / "model.safetensors").read_bytes() == WEIGHTS
    ((_, first_byte),) = [start for start in hub.starts if start[0] == "model.safetensors"]
    assert first_byte >= 10_000_000


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("hf:org/none", "has no model repository org/none, or HF_TOKEN may not read it: check the name"),
        ("hf:org/tiny@v9", "org/tiny has no revision v9: name a branch, a tag or a commit"),
        ("hf:org/gated", "org/gated is gated: accept its conditions at"),
        ("hf:tiny", "hf:tiny is not hf:ORG/NAME or hf:ORG/NAME@REVISION"),
        ("hf:org/weightless", f"org/weightless at {COMMIT} is no model that Weir can load: it has config.json, and"),
    ],
)
def test_what_cannot_be_fetched_says_what_to_do(at_hub: Hub, tmp_path: Path, source: str, message: str) -> None:
    at_hub.files |= {"org/gated/config.json": b"{}", "org/weightless/config.json": b"{}"}
    at_hub.gated.add("org/gated")
    with pytest.raises(UsageError, match=message):
        get_model(source, tmp_path / "model", print)
    assert not list(tmp_path.iterdir())


def test_a_gated_repository_is_fetched_with_a_token(
    at_hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_hub.gated.add("org/tiny")
    monkeypatch.setenv("HF_TOKEN", "hf_token")
    assert get_model("hf:org/tiny", tmp_path / "model", print)


def test_a_hub_that_is_away_is_named(
    at_hub: Hub, tmp_path: Path, free_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = f"http://127.0.0.1:{free_port}"
    monkeypatch.setattr(constants, "ENDPOINT", away)
    with pytest.raises(GetFailed, match=f"org/tiny could not be fetched from {away} .* what has arrived is kept"):
        get_model("hf:org/tiny", tmp_path / "model", print)


def test_offline_mode_is_named(at_hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(UsageError, match="HF_HUB_OFFLINE is set, and org/tiny has to be fetched"):
        get_model("hf:org/tiny", tmp_path / "model", print)


def test_a_disk_that_is_too_small_is_named_before_the_download(at_hub: Hub, tmp_path: Path) -> None:
    found = look_up("org/tiny", None, [".safetensors"])
    huge = dataclasses.replace(found, sizes={"model.safetensors": 2**60})
    with pytest.raises(GetFailed, match=r"org/tiny needs 1152921504\.6 GB more in .* are free: make space"):
        require_space(huge, tmp_path)
    require_space(found, tmp_path)


def test_the_configuration_alone_can_be_fetched_for_planning(at_hub: Hub, tmp_path: Path) -> None:
    assert get_model("hf:org/tiny", tmp_path / "model", print, config_only=True)
    assert sorted(path.name for path in (tmp_path / "model").iterdir()) == [
        "config.json",
        "tokenizer.json",
        "weir_source.json",
    ]
    with pytest.raises(UsageError, match=r"holds hf:org/tiny \(configuration and tokenizer only\) at"):
        get_model("hf:org/tiny", tmp_path / "model", print)
