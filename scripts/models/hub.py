"""Model repositories of a Hugging Face hub: `hf:ORG/NAME[@REVISION]`, by huggingface_hub.

Its environment variables apply: HF_ENDPOINT names another hub, HF_TOKEN is sent, HF_HUB_OFFLINE forbids connections.
Only what Weir reads is fetched: the safetensors, configuration and tokenizer files at the top of the repository.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from weir.scripts.launch.errors import UsageError
from weir.scripts.models.model_folder import GetFailed, Source, model_folder

if TYPE_CHECKING:
    from huggingface_hub.hf_api import RepoSibling

PREFIX = "hf:"
NAME = re.compile(r"(?P<repo>[\w.-]+/[\w.-]+)(?:@(?P<revision>[\w./-]+))?")
SUFFIXES = (".safetensors", ".json", ".jinja", ".txt", ".model", ".tiktoken")
CONFIG_ONLY = (".json", ".jinja", ".txt", ".model", ".tiktoken")


@dataclass(frozen=True, slots=True, kw_only=True)
class Repository:
    """A repository at a commit, and the files to take from it."""

    repo: str
    commit: str
    sizes: dict[str, int]  # in bytes, by name
    hashes: dict[str, str]  # SHA-256 by name, of the files that the hub knows it of

    @property
    def num_bytes(self) -> int:
        """Of all files."""
        return sum(self.sizes.values())


def get_from_hub(name: str, folder: Path, say: Callable[[str], None], *, config_only: bool = False) -> bool:
    """Make the model folder of a repository; False where it was there. Raises UsageError and GetFailed."""
    repo, revision = parse(name)
    found = look_up(repo, revision, CONFIG_ONLY if config_only else SUFFIXES)
    if not config_only:
        require_weights(found)
    what = f"{PREFIX}{repo}" + (" (configuration and tokenizer only)" if config_only else "")
    say(f"{repo} at {found.commit}: {len(found.sizes)} files, {found.num_bytes / 1e9:.2f} GB")

    def make(out: Path) -> dict[str, str]:
        require_space(found, out)
        download(found, out, say)
        return found.hashes

    return model_folder(folder, Source(name=what, revision=found.commit), make, say)


def parse(name: str) -> tuple[str, str | None]:
    """Repository and revision of `hf:ORG/NAME[@REVISION]`. Raises UsageError."""
    found = NAME.fullmatch(name.removeprefix(PREFIX))
    if found is None:
        raise UsageError(f"{name} is not {PREFIX}ORG/NAME or {PREFIX}ORG/NAME@REVISION (a branch, a tag or a commit)")
    return found["repo"], found["revision"]


def look_up(repo: str, revision: str | None, suffixes: Sequence[str]) -> Repository:
    """Which files there are at a revision; None is the main branch. Raises UsageError and GetFailed."""
    from huggingface_hub import HfApi

    with _clear_errors(repo, revision):
        info = HfApi().model_info(repo, revision=revision, files_metadata=True)
    files = [file for file in info.siblings or [] if _is_wanted(file, suffixes)]
    return Repository(
        repo=repo,
        commit=info.sha or "",
        sizes={file.rfilename: file.size or 0 for file in files},
        hashes={file.rfilename: file.lfs.sha256 for file in files if file.lfs is not None},
    )


def require_weights(found: Repository) -> None:
    """Raise UsageError where a repository has no configuration or no safetensors."""
    names = found.sizes
    if "config.json" not in names or not any(name.endswith(".safetensors") for name in names):
        raise UsageError(
            f"{found.repo} at {found.commit} is no model that Weir can load: it has "
            f"{', '.join(names) or 'none of the needed files'}, and config.json and *.safetensors are needed"
        )


def require_space(found: Repository, folder: Path) -> None:
    """Raise GetFailed where the disk has not enough space for what is missing in the folder."""
    there = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    free = shutil.disk_usage(folder).free
    if free < found.num_bytes - there:
        raise GetFailed(
            f"{found.repo} needs {(found.num_bytes - there) / 1e9:.1f} GB more in {folder}, and {free / 1e9:.1f} GB "
            "are free: make space, or name a folder on another disk"
        )


def download(found: Repository, folder: Path, say: Callable[[str], None]) -> None:
    """Fetch the files into a folder, each from where an interrupted call ended. Raises GetFailed.

    huggingface_hub's snapshot_download (2.4) starts a file again that a killed process left unfinished.
    """
    from huggingface_hub import hf_hub_url
    from huggingface_hub.file_download import http_get
    from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

    for name, size in found.sizes.items():
        with _clear_errors(found.repo, found.commit), (folder / name).open("ab") as file:
            url = hf_hub_url(found.repo, name, revision=found.commit)
            there = file.tell()
            say(f"{name}: {size / 1e6:.1f} MB" + (f", of which {there / 1e6:.1f} are here" if there else ""))
            http_get(
                url, file, resume_size=there, headers=build_hf_headers(), expected_size=size, displayed_filename=name
            )


def _is_wanted(file: RepoSibling, suffixes: Sequence[str]) -> bool:
    name = file.rfilename
    return "/" not in name and not name.startswith(".") and name.endswith(tuple(suffixes))


@contextmanager
def _clear_errors(repo: str, revision: str | None) -> Iterator[None]:
    """What huggingface_hub raises, as one line that says what to do."""
    from huggingface_hub import constants
    from huggingface_hub.errors import (  # type: ignore[attr-defined]
        GatedRepoError,
        HTTPError,  # the base of what its HTTP client raises
        OfflineModeIsEnabled,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    hub = constants.ENDPOINT
    try:
        yield
    except GatedRepoError as error:
        raise UsageError(
            f"{repo} is gated: accept its conditions at {hub}/{repo}, and set HF_TOKEN to a token of that account"
        ) from error
    except RepositoryNotFoundError as error:
        raise UsageError(
            f"{hub} has no model repository {repo}, or HF_TOKEN may not read it: check the name; a private one needs "
            "HF_TOKEN"
        ) from error
    except RevisionNotFoundError as error:
        raise UsageError(f"{repo} has no revision {revision}: name a branch, a tag or a commit that it has") from error
    except OfflineModeIsEnabled as error:
        raise UsageError(f"HF_HUB_OFFLINE is set, and {repo} has to be fetched: unset it, or name a folder") from error
    except (HTTPError, OSError) as error:
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise GetFailed(
            f"{repo} could not be fetched from {hub} ({reason}): check the connection and HF_ENDPOINT, and run the "
            "same command again; what has arrived is kept"
        ) from error
