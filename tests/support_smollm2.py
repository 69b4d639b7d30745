"""SmolLM2-135M-Instruct as a Hugging Face folder, fetched and converted once per machine.

`weir model get` makes it in a cache folder, which outlives the test session; it locks the folder against the other
processes that want it, and verifies every file when it is there already.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SOURCE = "smollm2-135m"


def cached_smollm2() -> Path:
    """The folder; an error shows what the command said."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "weir" / "models"
    cache.mkdir(parents=True, exist_ok=True)
    folder = cache / SOURCE
    command = [sys.executable, "-m", "weir.scripts.cli.main", "model", "get", SOURCE, str(folder)]
    got = subprocess.run(command, capture_output=True, text=True)
    assert got.returncode == 0, f"{' '.join(command)} ended with status {got.returncode}:\n{got.stdout}{got.stderr}"
    return folder
