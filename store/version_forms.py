"""Which folder of a version engines load: beside `<8 digits>/` may be the same weights in another form.

`<8 digits>.fp8/` is there exactly where the version was published last in that form (`publish.form`).
"""

from __future__ import annotations

from pathlib import Path

FP8 = ".fp8"


def fp8_folder(folder: Path) -> Path:
    """Where the quantised weights of a version's folder are, if there are any; that folder itself stays what it is."""
    return folder if folder.name.endswith(FP8) else folder.with_name(folder.name + FP8)


def loaded_by_engines(folder: Path) -> Path:
    """The folder that engines load for a version."""
    return quantised if (quantised := fp8_folder(folder)).is_dir() else folder
