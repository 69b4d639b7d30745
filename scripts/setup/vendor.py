"""The page's vendored JavaScript: fetched by npm, compared with the manifest, and put where the page serves it from.

ui/static/vendor/manifest.json is the one place with names, versions and hashes. A file is written only if its hash is
the manifest's. To take another version, change `version` and the folder in `file`, and run with `--accept`, which
writes the new hashes; the reviewer of that change reads the files. Needs npm, and the registry that npm is configured
with.

    python scripts/setup/vendor.py [--accept]
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

VENDOR = Path(__file__).parents[2] / "ui" / "static" / "vendor"
MANIFEST = VENDOR / "manifest.json"


class VendorError(Exception):
    """The message says what failed, why, and what to do next."""


def main(arguments: list[str]) -> int:
    """Fetch every package of the manifest; returns the exit status."""
    parser = argparse.ArgumentParser(description="Fetch what the page's client is vendored from, and verify it.")
    parser.add_argument("--accept", action="store_true", help="write the hashes of what was fetched to the manifest")
    accept = parser.parse_args(arguments).accept
    packages = json.loads(MANIFEST.read_text())
    try:
        for package in packages:
            _write(package, _fetch(package), accept)
    except (VendorError, OSError) as error:
        print(f"vendor: {error}", file=sys.stderr)
        return 1
    if accept:
        MANIFEST.write_text(json.dumps(packages, indent=2) + "\n")
    return 0


def _fetch(package: dict[str, Any]) -> dict[str, bytes]:
    """The files of a package as npm packs it, by their path in it."""
    wanted = f"{package['name']}@{package['version']}"
    with tempfile.TemporaryDirectory() as folder:
        try:
            subprocess.run(["npm", "pack", "--silent", wanted], cwd=folder, check=True, stdout=subprocess.DEVNULL)
        except FileNotFoundError as error:
            raise VendorError(
                "npm is not installed: install Node.js with npm, or copy the folder from a wheel"
            ) from error
        except subprocess.CalledProcessError as error:
            raise VendorError(f"npm could not fetch {wanted}: see its message above") from error
        (archive,) = Path(folder).glob("*.tgz")
        with tarfile.open(archive) as packed:
            files = {member.name: packed.extractfile(member) for member in packed.getmembers() if member.isfile()}
            return {name.partition("/")[2]: file.read() for name, file in files.items() if file is not None}


def _write(package: dict[str, Any], fetched: dict[str, bytes], accept: bool) -> None:
    """Write the files of a package that the manifest lists, none unless all are what it says."""
    contents = []
    for entry in package["files"]:
        if entry["from"] not in fetched:
            raise VendorError(
                f"{package['name']} {package['version']} has no {entry['from']}: correct `from` in {MANIFEST}"
            )
        contents.append(fetched[entry["from"]])
        digest = hashlib.sha256(contents[-1]).hexdigest()
        if accept:
            entry["sha256"] = digest
        elif digest != entry["sha256"]:
            raise VendorError(
                f"{entry['file']} was fetched with sha256 {digest}, the manifest says {entry['sha256']}: "
                "nothing was written; if the new content is wanted, read it and run with --accept"
            )
    for entry, content in zip(package["files"], contents, strict=True):
        path = VENDOR / entry["file"]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        print(f"{entry['sha256'][:12]}  {entry['file']}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
