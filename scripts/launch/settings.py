"""The settings of a run: one TOML file, `weir.toml`, a section per part, overridden by `WEIR_SECTION__KEY` variables.

Only this module reads configuration files and configuration variables. An unknown section or key is an error that lists
the valid ones. Every part gets its own section, never the whole.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

import typer
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from weir.agents.config import AgentsConfig
from weir.cluster.config import ClusterConfig
from weir.engine.config import EngineConfig
from weir.kernel_eval.config import KernelEvalConfig
from weir.proxy.config import ProxyConfig
from weir.scripts.launch.errors import UsageError
from weir.scripts.launch.placement import PlacementConfig
from weir.scripts.launch.port_row import in_row
from weir.store.config import StoreConfig
from weir.trainer.settings.config import TrainerConfig
from weir.trainer.settings.publishing import PublishConfig
from weir.ui.config import UiConfig

DEFAULT_FILE = Path("weir.toml")
ConfigOption = Annotated[Path | None, typer.Option(help="The run's weir.toml; default: ./weir.toml if it exists.")]
RootOption = Annotated[
    str | None, typer.Option(help="The store: a folder, or s3://…; default: store.root of weir.toml.")
]
Section = TypeVar("Section", bound=BaseModel)


class ModelConfig(BaseModel):
    """The first weights of a run."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: Path | None = Field(
        default=None,
        description="Hugging Face folder of the first weights; a published version in the store takes precedence.",
    )
    name: str = Field(default="weir", description="The model's name in /v1/models and in the agents' requests.")


class RouterConfig(BaseModel):
    """The router between proxy and engines."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["sglang-router", "smg"] = Field(default="sglang-router", description="Which router `weir up` starts.")
    host: str = Field(default="127.0.0.1", description="Address the router listens on.")
    port: int = Field(default=30000, description="Port the router listens on.")
    prometheus_port: int = Field(default=30001, description="Port of the router's own metrics.")
    policy: str | None = Field(
        default=None,
        description="How the router chooses an engine for a call; unset: round_robin, or with SGLang engines manual, "
        "which keeps a session at the engine that has its prefix in its cache.",
    )


class Settings(BaseSettings):
    """All sections of `weir.toml`."""

    model_config = SettingsConfigDict(env_prefix="WEIR_", env_nested_delimiter="__", extra="forbid", frozen=True)

    store: StoreConfig = StoreConfig()
    model: ModelConfig = ModelConfig()
    engine: EngineConfig = EngineConfig()
    router: RouterConfig = RouterConfig()
    placement: PlacementConfig = PlacementConfig()
    proxy: ProxyConfig = ProxyConfig()
    kernel_eval: KernelEvalConfig = KernelEvalConfig()
    trainer: TrainerConfig = TrainerConfig()
    publish: PublishConfig = PublishConfig()
    cluster: ClusterConfig = ClusterConfig()
    agents: AgentsConfig = AgentsConfig()
    ui: UiConfig = UiConfig()

    @model_validator(mode="after")
    def _publish_is_a_section(self) -> Self:
        if "publish" in self.trainer.model_fields_set:
            raise ValueError("trainer.publish: ways of publishing are set in the section [publish]")
        if "takes_turns" in self.trainer.model_fields_set:
            raise ValueError("trainer.takes_turns: it follows from placement.colocated; set that")
        return self

    @model_validator(mode="after")
    def _ranks_can_send(self) -> Self:
        if not self.publish.by_ranks:
            return self
        trainer = self.trainer
        if trainer.backend == "torch" and trainer.processes == 1 and not trainer.offload_weights:
            raise ValueError("publish.by_ranks: a round of trainer.processes = 1 has no ranks: set 2 or more")
        if self.placement.takes_turns:
            raise ValueError(
                "publish.by_ranks: with placement.colocated the ranks of a round end before engines have room for its "
                "version: remove one of the two"
            )
        return self

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """The environment overrides the values of the file."""
        return env_settings, init_settings


def load_settings(path: Path | None = None) -> Settings:
    """The settings of the file at `path`, else of `./weir.toml` if it exists, else the defaults.

    Raises UsageError for a file that is missing or not TOML, for unknown keys and for invalid values.
    """
    return _validated(_read(path), path or DEFAULT_FILE)


def existing_store(root: str | None, config: Path | None) -> StoreConfig:
    """The settings of a store that exists; read-only commands do not create one. Raises UsageError."""
    store = load_settings(config).store.at(root)
    is_shared = store.folder != store.root
    if not (is_shared or store.folder.is_dir()) or not (store.catalog_url or _is_store(store.folder)):
        raise UsageError(f"there is no store in {store.root}: name its folder by --root, or its weir.toml by --config")
    return store


def check_several(stores: Sequence[StoreConfig]) -> None:
    """Raise UsageError for a store that is named twice, or for several that would share one catalog."""
    roots = [str(store.folder.resolve()) for store in stores]
    twice = next((root for root in roots if roots.count(root) > 1), None)
    if twice is not None:
        raise UsageError(f"the store {twice} is named twice: name each once")
    if len(stores) > 1 and stores[0].catalog_url is not None:
        raise UsageError("several stores have a catalog each, but store.catalog_url names one: unset it, or show one")


def _is_store(root: Path) -> bool:
    """Whether the folder contains parts of a store."""
    return any((root / name).exists() for name in ("catalog.sqlite", "log", "versions"))


def with_flags(section: Section, flags: Mapping[str, Any], command: str) -> Section:
    """A section with a command's flags over it; a flag of None was not given.

    Raises UsageError that names the flag with an invalid value.
    """
    given = {name: value for name, value in flags.items() if value is not None}
    try:
        return type(section).model_validate(section.model_dump(exclude_unset=True) | given)
    except ValidationError as error:
        wrong = error.errors()[0]
        flag = str(wrong["loc"][0]).replace("_", "-")
        raise UsageError(f"--{flag} {wrong['input']}: {wrong['msg']}; see {command} --help") from None


def _read(path: Path | None) -> dict[str, Any]:
    if path is None and not DEFAULT_FILE.exists():
        return {}
    source = path or DEFAULT_FILE
    try:
        return tomllib.loads(source.read_text())
    except OSError as error:
        raise UsageError(
            f"cannot read the configuration {source}: {error.strerror}; name another file with --config"
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{source} is not valid TOML: {error}; fix that line and try again") from error


def _validated(values: dict[str, Any], source: Path) -> Settings:
    try:
        return in_row(Settings(**values))
    except ValidationError as error:
        raise UsageError("; ".join(f"{_origin(item, source)}: {_explain(item)}" for item in error.errors())) from None


def _origin(item: Any, source: Path) -> str:
    """The environment variable that an error is about, else the file."""
    variable = ("WEIR_" + "__".join(str(part) for part in item["loc"])).upper()
    return next((name for name in os.environ if name.upper() == variable), str(source))


def _explain(item: Any) -> str:
    where = ".".join(str(part) for part in item["loc"])
    if item["type"] == "extra_forbidden":
        return f"unknown key {where}; valid here: {', '.join(_valid_keys(item['loc'][:-1]))}"
    why = item["msg"].removeprefix("Value error, ")
    if item["type"] == "value_error" and isinstance(item["input"], dict):  # of several settings, maybe with keys
        return f"[{where}] {why}" if where else why
    return f"{where} = {item['input']!r}: {why}"


def _valid_keys(location: tuple[str | int, ...]) -> list[str]:
    model: type[BaseModel] = Settings
    for part in location:
        annotation = model.model_fields[str(part)].annotation
        if not (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
            break
        model = annotation
    return sorted(model.model_fields)
