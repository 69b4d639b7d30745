"""The folder that a freshly forked and contained process works in."""

from __future__ import annotations

import gc
import os


def enter(folder: str) -> None:
    """Go there, keep all files and caches there, and collect garbage again, which a zygote does not."""
    os.chdir(folder)
    os.environ["TMPDIR"] = os.environ["HOME"] = folder
    os.environ["TRITON_CACHE_DIR"] = f"{folder}/triton"
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = f"{folder}/inductor"
    gc.enable()
