"""Generates docs/configuration.md, the reference of all settings, from the configuration classes.

python -m weir.scripts.cli.config_reference > docs/configuration.md
"""

from __future__ import annotations

import sys

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from weir.scripts.launch.settings import Settings

_HEAD = """# Settings

One run is one `weir.toml`. Every setting below can be overridden by the environment variable `WEIR_SECTION__KEY`
(`WEIR_PROXY__PORT=8080`); an unknown key is an error. Made by `python -m weir.scripts.cli.config_reference`.
"""


def reference() -> str:
    """The page as Markdown: a table for each section."""
    return _HEAD + "".join(_section(name, field) for name, field in Settings.model_fields.items())


def _section(name: str, field: FieldInfo) -> str:
    model = field.annotation
    assert isinstance(model, type) and issubclass(model, BaseModel)
    nested = {key: setting for key, setting in model.model_fields.items() if _is_section(setting)}
    nested = {key: setting for key, setting in nested.items() if key not in Settings.model_fields}  # has its own table
    rows = "".join(_row(key, setting) for key, setting in model.model_fields.items() if not _is_section(setting))
    told = "\n".join(line.strip() for line in (model.__doc__ or "").strip().splitlines())
    own = f"\n## [{name}]\n\n{told}\n\n| key | default | meaning |\n| --- | --- | --- |\n{rows}"
    return own + "".join(_section(f"{name}.{key}", setting) for key, setting in nested.items())


def _is_section(setting: FieldInfo) -> bool:
    """Whether a setting is a table of settings of its own."""
    return isinstance(setting.annotation, type) and issubclass(setting.annotation, BaseModel)


def _row(key: str, setting: FieldInfo) -> str:
    default = setting.get_default(call_default_factory=True)
    if isinstance(default, BaseModel):
        default = default.model_dump(exclude_none=True)
    shown = "unset" if default is None else f"`{default}`"
    return f"| `{key}` | {shown} | {setting.description or ''} |\n"


if __name__ == "__main__":
    sys.stdout.write(reference())
