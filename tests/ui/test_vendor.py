"""What is vendored is what the manifest says, and nothing else; the page's own client stays small."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
STATIC = ROOT / "ui" / "static"
VENDOR = STATIC / "vendor"
PACKAGES = json.loads((VENDOR / "manifest.json").read_text())

MOST_LINES = 2500  # of our own JavaScript
MOST_BYTES = 300_000  # of all scripts and styles that a page loads, each compressed as a server sends it


def test_every_vendored_file_has_the_hash_of_the_manifest() -> None:
    entries = [entry for package in PACKAGES for entry in package["files"]]
    assert entries
    found = {entry["file"]: hashlib.sha256((VENDOR / entry["file"]).read_bytes()).hexdigest() for entry in entries}
    assert found == {entry["file"]: entry["sha256"] for entry in entries}


def test_every_vendored_file_is_in_the_manifest_under_its_package_and_version() -> None:
    there = {str(path.relative_to(VENDOR)) for path in VENDOR.rglob("*") if path.is_file()}
    listed = {
        entry["file"]: f"{package['name']}-{package['version']}" for package in PACKAGES for entry in package["files"]
    }
    assert there == {*listed, "manifest.json"}
    assert all(file.startswith(f"{folder}/") for file, folder in listed.items())


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package["name"])
def test_every_package_brings_its_licence(package: dict[str, str]) -> None:
    text = (VENDOR / f"{package['name']}-{package['version']}" / "LICENSE").read_text()
    assert f"{package['licence']} License" in text


def test_our_own_javascript_is_small() -> None:
    lines = {path.name: path.read_text().count("\n") for path in STATIC.glob("*.js")}
    assert 0 < sum(lines.values()) <= MOST_LINES, lines


def test_all_scripts_and_styles_together_are_loaded_in_little() -> None:
    files = [path for path in STATIC.rglob("*") if path.suffix in (".js", ".css")]
    assert sum(len(gzip.compress(path.read_bytes())) for path in files) <= MOST_BYTES


def fake_npm(folder: Path, packed: Path) -> dict[str, str]:
    """An environment whose npm gives this archive, whatever is asked for."""
    folder.mkdir()
    npm = folder / "npm"
    npm.write_text(f'#!/bin/sh\ncp "{packed}" fetched.tgz\n')
    npm.chmod(0o755)
    return {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}


def copied_tree(folder: Path) -> Path:
    """The script and the vendored files, to be changed."""
    shutil.copytree(VENDOR, folder / "ui" / "static" / "vendor")
    (folder / "scripts" / "setup").mkdir(parents=True)
    shutil.copy(ROOT / "scripts" / "setup" / "vendor.py", folder / "scripts" / "setup")
    return folder


def packed_uplot(folder: Path, *, altered: bool) -> Path:
    """What `npm pack` gives, made of the vendored files."""
    (package,) = PACKAGES
    for entry in package["files"]:
        path = folder / "package" / entry["from"]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes((VENDOR / entry["file"]).read_bytes() + (b"\n// more" if altered else b""))
    subprocess.run(["tar", "czf", folder / "packed.tgz", "-C", folder, "package"], check=True)
    return folder / "packed.tgz"


def run_vendor(tree: Path, environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, tree / "scripts" / "setup" / "vendor.py", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True)


def test_the_script_writes_what_was_fetched_if_it_is_what_the_manifest_says(tmp_path: Path) -> None:
    tree = copied_tree(tmp_path / "tree")
    lost = tree / "ui" / "static" / "vendor" / PACKAGES[0]["files"][0]["file"]
    lost.unlink()
    done = run_vendor(tree, fake_npm(tmp_path / "bin", packed_uplot(tmp_path, altered=False)))
    assert done.returncode == 0, done.stderr
    assert lost.read_bytes() == (VENDOR / PACKAGES[0]["files"][0]["file"]).read_bytes()


def test_the_script_writes_nothing_if_the_hash_differs_and_takes_it_over_if_it_is_accepted(tmp_path: Path) -> None:
    tree = copied_tree(tmp_path / "tree")
    manifest = tree / "ui" / "static" / "vendor" / "manifest.json"
    environment = fake_npm(tmp_path / "bin", packed_uplot(tmp_path, altered=True))
    before = {path: path.read_bytes() for path in manifest.parent.rglob("*") if path.is_file()}

    refused = run_vendor(tree, environment)
    assert refused.returncode == 1 and "--accept" in refused.stderr
    assert {path: path.read_bytes() for path in manifest.parent.rglob("*") if path.is_file()} == before

    assert run_vendor(tree, environment, "--accept").returncode == 0
    entry = json.loads(manifest.read_text())[0]["files"][0]
    content = (manifest.parent / entry["file"]).read_bytes()
    assert content.endswith(b"// more") and hashlib.sha256(content).hexdigest() == entry["sha256"]


def test_the_script_says_what_to_do_without_npm(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    done = run_vendor(copied_tree(tmp_path / "tree"), {"PATH": str(tmp_path / "bin")})
    assert done.returncode == 1 and "install Node.js" in done.stderr
