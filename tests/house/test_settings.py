"""weir.toml: what it accepts, what it refuses, and that the page of settings tells the truth."""

from pathlib import Path

import pytest

from weir.scripts.cli.config_reference import reference
from weir.scripts.launch.errors import UsageError
from weir.scripts.launch.settings import Settings, load_settings

ROOT = Path(__file__).parents[2]


def test_the_page_of_settings_is_what_the_classes_say() -> None:
    assert (ROOT / "docs/configuration.md").read_text() == reference()


def test_every_setting_is_explained() -> None:
    for section, field in Settings.model_fields.items():
        for key, setting in field.annotation.model_fields.items():
            assert setting.description, f"[{section}] {key}"


def test_an_unknown_key_is_refused_with_the_valid_ones(tmp_path: Path) -> None:
    file = tmp_path / "weir.toml"
    file.write_text("[router]\nprot = 1\n")
    with pytest.raises(UsageError, match=r"unknown key router\.prot; valid here: .*port"):
        load_settings(file)


def test_an_unknown_section_is_refused_with_the_valid_ones(tmp_path: Path) -> None:
    file = tmp_path / "weir.toml"
    file.write_text("[routing]\nport = 1\n")
    with pytest.raises(UsageError, match=r"unknown key routing; valid here: .*router"):
        load_settings(file)


def test_a_value_of_the_wrong_type_names_the_key_and_the_value(tmp_path: Path) -> None:
    file = tmp_path / "weir.toml"
    file.write_text('[router]\nport = "high"\n')
    with pytest.raises(UsageError, match=r"router\.port = 'high'"):
        load_settings(file)


def test_the_environment_overrides_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "weir.toml"
    file.write_text("[router]\nport = 1234\n")
    monkeypatch.setenv("WEIR_ROUTER__PORT", "4321")
    assert load_settings(file).router.port == 4321


def test_a_mistake_in_the_environment_names_the_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WEIR_ROUTER__PROT", "4321")
    with pytest.raises(UsageError, match=r"^WEIR_ROUTER__PROT: unknown key router\.prot; valid here: .*port"):
        load_settings()


def test_a_missing_file_and_broken_toml_are_clear_errors(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="name another file with --config"):
        load_settings(tmp_path / "none.toml")
    for content in (b"[router\n", b"\xff\xfe"):
        (tmp_path / "bad.toml").write_bytes(content)
        with pytest.raises(UsageError, match="not valid TOML"):
            load_settings(tmp_path / "bad.toml")


def test_settings_that_contradict_each_other_are_named_without_all_the_others(tmp_path: Path) -> None:
    file = tmp_path / "weir.toml"
    file.write_text('[trainer]\ncontrol_key = "secret"\nprocesses = 3\ncontext_parallel = 2\n')
    with pytest.raises(UsageError, match=r"weir\.toml: \[trainer\] context_parallel = 2 processes share") as refused:
        load_settings(file)
    assert "secret" not in str(refused.value)
