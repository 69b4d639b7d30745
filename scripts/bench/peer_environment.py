"""Virtual environments of the peers that benchmarks compare with: their packages never mix with ours."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from weir.scripts.launch.errors import UsageError


def make_environment(folder: Path, requirements: Sequence[str], *, program: str) -> None:
    """Install the requirements into a virtual environment, unless it has the program already.

    Raises UsageError where pip fails, or the program is missing afterwards.
    """
    wanted = folder / "bin" / program
    if wanted.exists():
        return
    print(f"installing {' '.join(requirements)} into {folder} …", flush=True)
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    command = [str(folder / "bin" / "pip"), "install", "--quiet", *requirements]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode or not wanted.exists():
        raise UsageError(
            f"cannot install {requirements[0]} into {folder}: {done.stderr.strip()[-500:]}; name another folder"
        )
