"""Reads the settings from the environment: `TURNSCORE_` and the field's name, `__` between levels.

Nothing else reads the environment. A variable that no setting reads is refused: its owner would rely on it in vain.
"""

import json
import os
import re
import sys
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal, get_origin

from pydantic import (
    BaseModel,
    Field,
    FiniteFloat,
    JsonValue,
    PositiveFloat,
    PositiveInt,
    StringConstraints,
    ValidationError,
    field_validator,
)
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError
from pydantic_settings import BaseSettings, SettingsConfigDict, SettingsError
from turnscore_core.load_settings import KEPT_VECTOR_BYTES, DeviceName, LoadSettings
from turnscore_wire import Limits, describe_refusal

from turnscore_service.settings.api import AdminSettings, AuthSettings, GrpcSettings, HttpSettings, PageSettings
from turnscore_service.settings.cache import CacheSettings
from turnscore_service.settings.group import Listed, SettingsGroup, ShadowVersions, SplitVersions


class TelemetrySettings(SettingsGroup):
    """Which calls are traced, and to which collector."""

    endpoint: str = Field(
        default="",
        description="OTLP collector: `http://collector:4318` (HTTP), `http://collector:4317` (gRPC). Empty: nothing "
        "is recorded. `OTEL_EXPORTER_OTLP_*` set certificates and compression.",
    )
    protocol: Literal["http", "grpc"] = Field(default="http", description="OTLP's protocol.")
    headers: dict[str, str] = Field(
        default_factory=dict,
        repr=False,
        description='Headers of the export, as JSON: `{"authorization": "Basic ..."}`.',
    )
    sample_share: Annotated[float, Field(ge=0, le=1)] = Field(
        default=0.01,
        description="Share of calls without `traceparent` that become a span; with one, its sampled flag decides.",
    )
    events: Literal["off", "sampled", "all"] = Field(
        default="sampled",
        description="Scores that become `gen_ai.evaluation.result` log records: of `sampled` calls, of `all`, or none "
        "(`off`). `all` costs a call of one scorer 3 % more CPU (measured).",
    )
    service_name: Annotated[str, Field(min_length=1)] = Field(
        default="turnscore", description="`service.name` of everything that is exported."
    )

    @field_validator("endpoint")
    @classmethod
    def _know_scheme(cls, value: str) -> str:
        if value and not value.startswith(("http://", "https://")):
            raise PydanticCustomError("endpoint", "must begin with http:// or https://")
        return value


PREFIX = "TURNSCORE_"
# What our clients and commands read; they may share an environment with the service.
CLIENT_VARIABLES = frozenset({f"{PREFIX}API_KEY", f"{PREFIX}GRPC_ADDRESS", f"{PREFIX}URL"})
# Kubernetes describes each of its services so to every container, ours too where its service is called turnscore.
_OF_A_CLUSTER = re.compile(
    r"TURNSCORE_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)"
)
_OF_A_CLUSTER_PORT = re.compile(r"TURNSCORE_(\w+_)?PORT")
_ADDRESS = re.compile(r"(tcp|udp|sctp)://")


def refusal_of_unknown(settings: type[BaseModel], environment: Mapping[str, str]) -> str:
    """A line for each variable that no setting reads, with the closest known name; empty where all are known.

    Names are compared as the settings are read, in any case. No value is repeated.
    """
    mappings = {name: get_origin(field.annotation) is dict for name, field in _fields_of(settings, PREFIX)}
    known = {**mappings, **dict.fromkeys(CLIENT_VARIABLES, False)}
    endings = [each.removeprefix(PREFIX) for each in known]  # with the prefix everything would be alike
    lines = []
    for name in sorted(each for each in environment if each.upper().startswith(PREFIX)):
        if not _is_known(name.upper(), environment[name], known):
            near = get_close_matches(name.upper().removeprefix(PREFIX), endings, n=1)
            lines.append(f"{name}: there is no such setting{f'; did you mean {PREFIX}{near[0]}?' if near else ''}")
    return "\n".join(lines)


def _is_known(name: str, value: str, known: Mapping[str, bool]) -> bool:
    parts = name.split("__")
    is_entry = any(known.get("__".join(parts[:count]), False) for count in range(1, len(parts)))
    is_port = _OF_A_CLUSTER_PORT.fullmatch(name) and _ADDRESS.match(value)
    return bool(name in known or is_entry or is_port or _OF_A_CLUSTER.fullmatch(name))


def refusal_of_no_json(settings: type[BaseModel], environment: Mapping[str, str]) -> str:
    """A line for each variable that should hold JSON and does not, with an example; no value is repeated."""
    values = {name.upper(): value for name, value in environment.items()}
    lines = []
    for name, field in _fields_of(settings, PREFIX):
        if name in values and (get_origin(field.annotation) is dict or _group_of(field)) and not _is_json(values[name]):
            example = re.search("as JSON: `(.+?)`", field.description or "")
            lines.append(f"{name} is not JSON{f', such as {example[1]}' if example else ''}")
    return "\n".join(lines)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _fields_of(model: type[BaseModel], prefix: str) -> Iterator[tuple[str, FieldInfo]]:
    """Every setting and group of settings by its variable. The entries of one that is a mapping are variables too."""
    for name, field in model.model_fields.items():
        yield f"{prefix}{name}".upper(), field
        if group := _group_of(field):
            yield from _fields_of(group, f"{prefix}{name}__")


def _group_of(field: FieldInfo) -> type[BaseModel] | None:
    kind = field.annotation
    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None


class RuntimeSettings(SettingsGroup):
    """How ONNX Runtime is used, and where."""

    device: DeviceName = Field(
        default="auto",
        description="`cpu`; `cuda` (all devices, one per worker in turn); `cuda:1`; `cuda:0,cuda:1` (in "
        "turn); `auto`: CUDA if it works and the bundle has a graph for it, else the CPU "
        "([deploy.md](deploy.md#devices)).",
    )
    gpu_memory_share: Annotated[float, Field(gt=0, le=1)] = Field(
        default=0.8,
        description="Share of a CUDA device's memory, free after loading the models, for the batches of all its "
        "workers and scorers.",
    )
    threads: Annotated[int, Field(ge=0)] = Field(
        default=0,
        description="Threads of one batch. 0: measured at start for each model, on the CPUs of this process "
        "(affinity, cgroup).",
    )
    concurrent_batches: Annotated[int, Field(ge=0)] = Field(
        default=0, description="Concurrent batches of one scorer. 0: CPUs divided by threads."
    )
    kept_vector_bytes: Annotated[int, Field(ge=0)] = Field(
        default=KEPT_VECTOR_BYTES,
        description="Memory of one worker for [vectors of texts](architecture.md#kept-vectors), so that a "
        "conversation's earlier turns are not read again; enough for 500 conversations. 0: none.",
    )
    stall_seconds: PositiveFloat = Field(
        default=60.0,
        description="Time after which a batch counts as hung: its callers get an error, `/readyz` turns 503, and the "
        "scorer gets new threads.",
    )


class BatchingSettings(SettingsGroup):
    """How turns are put into batches."""

    max_batch_tokens: Annotated[int, Field(ge=0)] = Field(
        default=0,
        description="Tokens of one batch, including padding. 0: 1,024 on the CPU (measured: 512 to 1,024 cost the "
        "least CPU per token); on CUDA what memory allows, up to 65,536.",
    )
    max_padding_ratio: Annotated[float, Field(ge=1)] | None = Field(
        default=None,
        description="Largest cost of a batch relative to its turns computed separately: rows x longest^2 over "
        "the sum of squares. Empty: 1.0 on a CPU (turns of one padded width), 1.1 on CUDA.",
    )


class AdmissionSettings(SettingsGroup):
    """How much work may be in flight before more is refused."""

    max_items: PositiveInt = Field(default=1024, description="Turns in flight per scorer.")
    max_tokens: PositiveInt = Field(
        default=131_072,
        description="Estimated tokens in flight per scorer; 256 characters to tokenize count as one more.",
    )


class ConversationSettings(SettingsGroup):
    """What live conversations may take."""

    max_open: PositiveInt = Field(
        default=2000, description="Open conversations in one worker; a further one is `overloaded`."
    )
    max_bytes: PositiveInt = Field(
        default=1024 * 1024, description="Bytes of all messages of a conversation; beyond, it ends as `too_large`."
    )
    max_pending: PositiveInt = Field(
        default=8, description="Messages accepted but not answered; the service then stops reading."
    )
    idle_seconds: PositiveFloat = Field(
        default=300.0,
        description="Time without a message or a pending answer after which a conversation ends as "
        "`deadline_exceeded`; also the time in which a caller must accept an answer.",
    )


PartName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]*(\.[a-z0-9_ -]+)?$", max_length=128)]


class CombinationSettings(SettingsGroup):
    """A score made of several scorers' parts."""

    weights: Annotated[dict[PartName, FiniteFloat], Field(min_length=1, max_length=32)]
    threshold: FiniteFloat | None = None
    percentiles: Path | None = None


CombinationName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_+-]{0,62}$")]


class Settings(BaseSettings):
    """Everything that can be set. A wrong value stops the start with a sentence that names the variable."""

    model_config = SettingsConfigDict(env_prefix="TURNSCORE_", env_nested_delimiter="__", frozen=True, extra="ignore")

    models: Listed[str] = Field(
        default=(),
        description="Bundles to load: `name`, `name:version` or `name:latest` of the model store or the "
        "starter bundles, or a folder's path (with a `/`). Empty: all starter bundles.",
    )
    shadow: ShadowVersions = Field(
        default=(),
        description="Versions that score a sample of live turns without serving the result, one per scorer: "
        "`engagement:1.1.0`, or `engagement:1.1.0=0.05` with the share, else 0.1 ([rollouts.md](rollouts.md#shadow)).",
    )
    split: SplitVersions = Field(
        default=(),
        description="Versions that serve a share of conversations, one per scorer: `engagement:1.1.0=0.1` "
        "([rollouts.md](rollouts.md#split)). 0: only API keys that name the version.",
    )
    default_scorers: Listed[str] = Field(
        default=(),
        description="Scorers for requests that name none. Empty: all but stand-ins, or all if there are only "
        "stand-ins. A ranking asks quality only, if it is one of them.",
    )
    thresholds: dict[str, FiniteFloat | None] = Field(
        default_factory=dict,
        description='Values below which a turn\'s `label` is `low`, as JSON: `{"quality": 0.35}`. Replaces the '
        "bundles' thresholds; null removes the label.",
    )
    combinations: dict[CombinationName, CombinationSettings] = Field(
        default_factory=dict,
        description='Weighted sums of values or details, as JSON: `{"engagement+relevance": {"weights": '
        '{"engagement": 0.5, "relevance": 0.5}, "threshold": 0.4, "percentiles": "combination.json"}}`; the last two '
        "are optional ([api.md](api.md#combined-scores)).",
    )
    workers: PositiveInt = Field(default=1, description="Worker processes; each loads every model.")
    default_deadline_ms: PositiveInt = Field(default=10_000, description="Deadline of a request that names none.")
    drain_seconds: Annotated[float, Field(ge=0)] = Field(
        default=1.0,
        description="Time from SIGTERM (`/readyz` turns 503) until new connections are refused. If it exceeds your "
        "load balancer's check interval, no request is lost.",
    )
    shutdown_seconds: PositiveFloat = Field(default=30.0, description="Time for work in flight after that.")
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = Field(
        default="INFO", description="Lowest level that is logged: JSON lines, on a terminal sentences."
    )
    log_requests: bool = Field(
        default=False, description="Whether every request is logged, without its text. Failures always are."
    )
    log_slow_seconds: Annotated[float, Field(ge=0)] = Field(
        default=2.5,
        description="Duration from which a request or a conversation's turn is logged as slow, with the time "
        "of each stage; at most ten lines per second. 0: none.",
    )
    metric_tenants: Annotated[Listed[str], Field(max_length=32)] = Field(
        default=(),
        description="Up to 32 names of API keys that metrics on live turns distinguish by `tenant`; other "
        "callers are `other`. Empty: no distinction.",
    )
    options: dict[str, dict[str, JsonValue]] = Field(
        default_factory=dict,
        description='Options that replace the bundles\', by scorer, as JSON: `{"fed": {"own_qualities": {"funny": '
        '{"positive": ["haha"], "negative": ["I don\'t get it."]}}}}`.',
    )
    limits: Limits = Field(default_factory=Limits, description="What one request may carry.")
    runtime: RuntimeSettings = Field(default_factory=RuntimeSettings)
    batching: BatchingSettings = Field(default_factory=BatchingSettings)
    admission: AdmissionSettings = Field(default_factory=AdmissionSettings)
    conversations: ConversationSettings = Field(default_factory=ConversationSettings)
    cache: CacheSettings = Field(default_factory=CacheSettings)
    http: HttpSettings = Field(default_factory=HttpSettings)
    page: PageSettings = Field(default_factory=PageSettings)
    grpc: GrpcSettings = Field(default_factory=GrpcSettings)
    auth: AuthSettings = Field(default_factory=AuthSettings)
    admin: AdminSettings = Field(default_factory=AdminSettings)
    telemetry: TelemetrySettings = Field(default_factory=TelemetrySettings)

    def loading(self) -> LoadSettings:
        """What of them concerns loading models: the settings of these names."""
        known = {**dict(self.runtime), **dict(self.batching), **dict(self)}
        return LoadSettings(**{name: known[name] for name in LoadSettings.model_fields})


def read_settings(given: Mapping[str, Any] | None = None) -> Settings:
    """The settings, `given` ones before the environment's; or the end of the process with a sentence that names one.

    A variable that no setting reads ends it too: what it was to switch on would be off.
    """
    if refusal := refusal_of_unknown(Settings, os.environ):
        sys.exit(refusal)
    try:
        return Settings(**(given or {}))
    except ValidationError as error:
        field, message = describe_refusal(error)
        if (first := error.errors(include_url=False)[0])["type"] == "path_not_file":
            message = f"there is no file {first['input']}"
        sys.exit(f"TURNSCORE_{field.upper().replace('.', '__')}: {message}")
    except SettingsError as error:  # which repeats no value
        sys.exit(
            refusal_of_no_json(Settings, os.environ)
            or f"a TURNSCORE_ setting that takes JSON holds something else: {error}"
        )
