"""What scripts/install decides: what is there already, where packages come from, which build of torch."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from weir.scripts.setup import installer as module
from weir.scripts.setup.installer import (
    LOCK,
    STAMP,
    UNFINISHED,
    Installer,
    InstallError,
    digest,
    extras_of,
    install,
    is_moved,
    known_extras,
    merged_settings,
    pinned,
    torch_build,
    uv_variables,
)

ROOT = Path(__file__).parents[3]

# Stands in for `uv pip install`: keeps its arguments, and ends with the status that the test wants.
PROGRAM = """
import json, os, sys
from pathlib import Path
bin = Path(os.environ["ROOT"], ".venv", "bin")
(bin / "weir").write_text(f"#!{bin}/python")
with open(os.environ["CALLS"], "a") as calls: print(json.dumps(sys.argv[1:]), file=calls)
sys.exit(int(os.environ.get("STATUS", 0)))
"""


class Project:
    """A project folder whose environment holds nothing, and an installer that only notes what it is asked for."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = folder
        self.venv = folder / ".venv"
        self._calls = folder / "calls"
        (folder / "pyproject.toml").write_text('[project.optional-dependencies]\ntest = ["pytest"]\ndev = ["ruff"]\n')
        (folder / LOCK).write_text("torch==2.13.0\n")
        monkeypatch.setenv("ROOT", str(folder))
        monkeypatch.setenv("CALLS", str(self._calls))
        monkeypatch.setattr(module, "make_environment", self._make_environment)
        monkeypatch.setattr(module, "choose_installer", lambda *_: python_installer(PROGRAM))
        monkeypatch.setattr(module, "torch_build", lambda *_, **__: [])

    def _make_environment(self, venv: Path, *, anew: bool = False) -> None:
        if anew:
            shutil.rmtree(venv)
        (venv / "bin").mkdir(parents=True, exist_ok=True)
        (venv / "lib" / "python3.11" / "site-packages").mkdir(parents=True, exist_ok=True)
        if not (venv / "bin" / "python").exists():
            (venv / "bin" / "python").symlink_to(sys.executable)

    def install(self, *extras: str) -> None:
        install(self.root, frozenset(extras))

    def calls(self) -> list[list[str]]:
        return [json.loads(line) for line in self._calls.read_text().splitlines()] if self._calls.exists() else []


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    return Project(tmp_path, monkeypatch)


def python_installer(program: str, name: str = "uv") -> Installer:
    return Installer(name=name, argv=(sys.executable, "-c", program), environment=os.environ)


def test_it_installs_what_is_asked_for_and_nothing_where_that_is_there(project: Project) -> None:
    project.install()
    project.install("test")
    project.install("test")
    project.install()
    weir = str(project.root)
    pins = ["--constraint", str(project.root / LOCK), "--editable"]
    assert project.calls() == [[*pins, weir], [*pins, f"{weir}[test]"]]


def test_what_one_script_asked_for_stays_when_another_asks_for_its_own(project: Project) -> None:
    project.install("test")
    project.install("dev")
    assert extras_of(project.venv, digest(project.root)) == {"", "test", "dev"}
    project.install("dev", "test")
    assert len(project.calls()) == 2


def test_a_changed_lock_is_installed(project: Project) -> None:
    project.install("test")
    (project.root / LOCK).write_text("torch==2.13.1\n")
    assert extras_of(project.venv, digest(project.root)) == set()
    project.install()
    assert len(project.calls()) == 2


def test_an_installation_that_was_cut_off_is_made_anew_with_the_extras_that_were_there(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.install("test")
    monkeypatch.setenv("STATUS", "2")
    with pytest.raises(InstallError, match=r"uv ended with status 2.*index is reachable.*the disk has free space"):
        project.install("dev")
    assert (project.venv / UNFINISHED).exists()
    (project.venv / "half-written").touch()
    monkeypatch.setenv("STATUS", "0")
    project.install("dev")
    assert project.calls()[-1][-1] == f"{project.root}[dev,test]"
    assert not (project.venv / UNFINISHED).exists() and not (project.venv / "half-written").exists()
    assert extras_of(project.venv, digest(project.root)) == {"", "test", "dev"}


def test_an_index_that_lacks_a_version_is_named_and_changes_nothing(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STATUS", "1")
    with pytest.raises(InstallError, match=r"the index lacks one of requirements.lock: name another index with PIP_"):
        project.install()
    assert not (project.venv / UNFINISHED).exists() and not (project.venv / STAMP).exists()


def test_a_disk_that_is_nearly_full_is_named(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATUS", "2")
    monkeypatch.setattr(module, "LOW_DISK_BYTES", 10**18)
    with pytest.raises(InstallError, match=r"The disk has .* GB left"):
        project.install()


def test_an_environment_that_was_made_in_another_folder_does_not_count(project: Project) -> None:
    project.install()
    assert not is_moved(project.venv)
    (project.venv / "bin" / "weir").write_text("#!/elsewhere/.venv/bin/python3\n")
    assert is_moved(project.venv)
    assert extras_of(project.venv, digest(project.root)) == set()


def test_an_interpreter_that_stands_behind_sh_is_found_too(project: Project) -> None:
    project.install()
    bin_folder = project.venv / "bin"
    (bin_folder / "weir").write_text(f"#!/bin/sh\n'''exec' '{bin_folder}/python3' \"$0\" \"$@\"\n")
    assert not is_moved(project.venv)


@pytest.mark.parametrize("stamp", ["0123", "e3b0c44298fc", "[]", "{}", '{"files": 1}'])
def test_a_stamp_of_another_kind_counts_for_nothing(project: Project, stamp: str) -> None:
    project.install()
    (project.venv / STAMP).write_text(stamp)
    assert extras_of(project.venv, digest(project.root)) == set()


def test_an_unknown_extra_is_refused_with_the_known_ones(project: Project) -> None:
    with pytest.raises(InstallError, match=r"no extra tests; pyproject.toml has test, dev"):
        known_extras(project.root, ["dev", "tests"])


def test_pips_settings_become_uvs() -> None:
    listed = (
        "global.index-url='https://mirror.example/simple'\n"
        "global.extra-index-url='file:///one\\nfile:///two'\n"
        "install.find-links='/wheels /more'\n"
        ":env:.timeout='90'\nglobal.timeout='15'\nglobal.cert='/cert.pem'\nglobal.progress-bar='off'\n"
    )
    assert uv_variables(merged_settings(listed)) == {
        "UV_DEFAULT_INDEX": "https://mirror.example/simple",
        "UV_INDEX": "file:///one file:///two",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
        "UV_FIND_LINKS": "/wheels,/more",
        "UV_HTTP_TIMEOUT": "90",
        "SSL_CERT_FILE": "/cert.pem",
    }


def test_one_index_is_asked_as_uv_asks_it() -> None:
    assert uv_variables(merged_settings("global.index-url='https://mirror.example/simple'")) == {
        "UV_DEFAULT_INDEX": "https://mirror.example/simple"
    }


class Index:
    """Stands for what an index offers."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, offered: Iterable[tuple[str, ...]]) -> None:
        known = set(offered)
        monkeypatch.setattr(Installer, "offers", lambda _, *arguments: arguments in known)
        monkeypatch.delenv("UV_TORCH_BACKEND", raising=False)


CPU, FROM_TORCH = ("torch==2.13.0+cpu",), ("torch==2.13.0+cpu", "--torch-backend", "cpu")
CUDA = ("torch==2.13.0", "torch!=2.13.0+cpu")


@pytest.mark.parametrize(
    ("driver", "offered", "taken"),
    [
        (False, [CPU, FROM_TORCH, CUDA], ["torch==2.13.0+cpu"]),
        (False, [FROM_TORCH, CUDA], ["torch==2.13.0+cpu", "--torch-backend", "cpu"]),
        (False, [CUDA], []),
        (True, [CPU, FROM_TORCH, CUDA], ["torch!=2.13.0+cpu"]),
        (True, [CPU], []),
    ],
)
def test_torchs_build_is_that_of_the_machine_where_an_index_offers_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, driver: bool, offered: list[tuple[str, ...]], taken: list[str]
) -> None:
    Index(monkeypatch, offered)
    monkeypatch.setattr(module, "has_nvidia_driver", lambda: driver)
    assert torch_build(python_installer(""), tmp_path, "2.13.0") == taken


def test_a_build_that_is_larger_than_needed_is_said_aloud(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Index(monkeypatch, [CUDA])
    monkeypatch.setattr(module, "has_nvidia_driver", lambda: False)
    torch_build(python_installer("", name="pip"), tmp_path, "2.13.0")
    assert "offers torch==2.13.0+cpu: torch's build with CUDA is taken" in capsys.readouterr().err


def test_a_build_of_torch_that_is_there_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Index(monkeypatch, [CPU, CUDA])
    monkeypatch.setattr(module, "has_nvidia_driver", lambda: False)
    (tmp_path / "lib/python3.11/site-packages/torch-2.13.0+cu130.dist-info").mkdir(parents=True)
    assert torch_build(python_installer(""), tmp_path, "2.13.0") == []


def test_the_lock_has_the_pin_that_is_asked_for(project: Project) -> None:
    assert pinned(project.root, "torch") == "2.13.0"
    with pytest.raises(InstallError, match=r"has no line uv==…; write it anew with scripts/install --lock"):
        pinned(project.root, "uv")


def test_the_script_says_what_is_wrong_with_its_arguments() -> None:
    asked = subprocess.run([ROOT / "scripts/install", "tests"], capture_output=True, text=True)
    assert asked.returncode == 2
    assert asked.stderr.startswith(
        "weir: there is no extra tests; pyproject.toml has bench, gguf, lora, megatron, ray, test"
    )


def test_an_interpreter_that_is_too_old_is_named(tmp_path: Path) -> None:
    old = tmp_path / "python3.8"
    old.write_text('#!/bin/sh\n[ "$1" = --version ] && echo "Python 3.8.20"; exit 1\n')
    old.chmod(0o755)
    asked = subprocess.run(
        [ROOT / "scripts/install"], env=os.environ | {"PYTHON": str(old)}, capture_output=True, text=True
    )
    assert asked.returncode == 2
    assert "Python 3.11 or newer is needed" in asked.stderr and "Python 3.8.20" in asked.stderr
