"""requirements.lock: every extra is covered, and nothing of the machine or the index that it was made with is in it."""

import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
LOCK = ROOT / "requirements.lock"


def locked() -> dict[str, list[str]]:
    """Versions by name; some differ by platform or Python."""
    found: dict[str, list[str]] = {}
    for line in LOCK.read_text().splitlines():
        requirement = Requirement(line)
        (pin,) = requirement.specifier
        assert pin.operator == "==", line
        found.setdefault(canonicalize_name(requirement.name), []).append(pin.version)
    return found


def test_the_lock_pins_what_the_project_and_all_of_its_extras_ask_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = [*project["dependencies"], *(one for extra in project["optional-dependencies"].values() for one in extra)]
    pins = locked()
    for requirement in map(Requirement, asked):
        versions = pins[canonicalize_name(requirement.name)]
        assert all(version in requirement.specifier for version in versions), f"{requirement}: {versions}"


def test_the_lock_names_no_index_no_folder_and_no_build_of_one_machine() -> None:
    assert not re.search(r"://|@|\+|--|/", LOCK.read_text())
