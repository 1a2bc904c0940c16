"""Options of `turnscore corpus` and how their values are parsed. Raises usage errors alone."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, cast

import typer
from pydantic import TypeAdapter, ValidationError
from turnscore_wire import CacheNamespace, Speaker, describe_refusal

from turnscore_corpus.inputs.input_files import FORMATS, Format

_INPUT, _SCORING, _WORK = "Input", "Scoring", "Work"


def _option(name: str, text: str, panel: str, **more: Any) -> Any:
    return typer.Option(name, help=text, rich_help_panel=panel, **more)


Inputs = Annotated[
    list[str],
    typer.Argument(
        help="Files or folders of Parquet (.parquet, .pq), JSON lines (.jsonl, .ndjson, .json) or CSV, the latter two "
        "also as .gz or .zst; paths, or addresses such as s3://bucket/folder.",
        metavar="INPUT...",
    ),
]
Output = Annotated[str, typer.Argument(help="The folder to write, or to resume in: a path or an address.")]
FormatName = Annotated[
    str | None, _option("--format", f"The format of files whose ending does not name it: {', '.join(FORMATS)}.", _INPUT)
]
RowHolds = Annotated[
    str,
    _option("--row", "What a row holds: a whole `dialogue`, or one `turn`; a dialogue's rows stand together.", _INPUT),
]
IdColumn = Annotated[
    str | None,
    _option(
        "--id-column", "Column of the dialogue's name; default: `id`, or `dialogue` where a row is a turn.", _INPUT
    ),
]
TurnsColumn = Annotated[
    str | None, _option("--turns-column", "Column of turns, {speaker, text}: a list or JSON; default: `turns`.", _INPUT)
]
MessagesColumn = Annotated[
    str | None,
    _option("--messages-column", "Column of OpenAI's chat messages: a list or JSON; default: `messages`.", _INPUT),
]
SpeakerColumn = Annotated[str, _option("--speaker-column", "Where a row is a turn: the column of its speaker.", _INPUT)]
TextColumn = Annotated[str, _option("--text-column", "Where a row is a turn: the column of its text.", _INPUT)]
OrderColumn = Annotated[
    str | None,
    _option("--order-column", "Where a row is a turn: the column of numbers that order a dialogue's turns.", _INPUT),
]
Speakers = Annotated[
    str | None,
    _option("--speakers", "Names of speakers beside `user` and `system`, such as `human=user,bot=system`.", _INPUT),
]
SystemColumn = Annotated[
    str | None, _option("--system-column", "Column of the chatbot's name, for the report.", _INPUT)
]
DayColumn = Annotated[
    str | None,
    _option("--day-column", "Column of the dialogue's day or time, for the report.", _INPUT),
]
Scorers = Annotated[
    str | None,
    _option("--scorers", "Scorers to ask, separated by commas; default: all but stand-ins.", _SCORING),
]
Options = Annotated[
    str | None,
    _option("--options", 'Options by scorer, as JSON or a file of it: {"fed": {"qualities": ["fluent"]}}.', _SCORING),
]
Models = Annotated[
    str | None,
    _option("--models", "Bundles, separated by commas: names, or folders with a /; default: the starters.", _SCORING),
]
Device = Annotated[str, _option("--device", "Where to compute: `cpu`, `auto`, or a device such as `cuda:0`.", _SCORING)]
MaxBatchTokens = Annotated[
    int | None, _option("--max-batch-tokens", "Most tokens in one batch; default: as measured.", _SCORING, min=1)
]

Redis = Annotated[
    str | None,
    _option("--redis", "A Redis that keeps scores of equal turns: its address, or a file that holds it.", _SCORING),
]
RedisNamespace = Annotated[
    str, _option("--redis-namespace", "The namespace of the kept scores; a service's is `default`.", _SCORING)
]


def words(text: str | None, option: str) -> list[str] | None:
    """The words between commas. Raises a usage error for an empty one."""
    if text is None:
        return None
    found = [each.strip() for each in text.split(",")]
    if not all(found):
        raise typer.BadParameter("has an empty name", param_hint=option)
    return found


def format_of(text: str | None) -> Format | None:
    if text is not None and text not in FORMATS:
        raise typer.BadParameter(f"must be one of {', '.join(FORMATS)}", param_hint="--format")
    return text


def speakers_of(text: str | None) -> tuple[tuple[str, Speaker], ...]:
    """Which speaker each name stands for."""
    found: list[tuple[str, Speaker]] = []
    for word in words(text, "--speakers") or ():
        name, _, speaker = word.partition("=")
        if not name or speaker not in ("user", "system"):
            raise typer.BadParameter(f"{word!r} must be NAME=user or NAME=system", param_hint="--speakers")
        found.append((name, cast("Speaker", speaker)))
    return tuple(found)


def redis_address(text: str | None) -> str | None:
    """The address, read from a file where one is named, so that no password stands on a command line."""
    if text is None:
        return None
    try:
        from turnscore_service.settings.cache import read_address
    except ModuleNotFoundError:
        text = "takes the service's package: install turnscore-corpus[redis]"
        raise typer.BadParameter(text, param_hint="--redis") from None
    try:
        found = text if "://" in text else Path(text).read_text(encoding="utf-8").strip()
        read_address(found)
    except (OSError, ValueError) as error:
        raise typer.BadParameter(str(error), param_hint="--redis") from None
    return found


def namespace_of(text: str) -> str:
    """The name, checked as the cache checks it."""
    try:
        return _NAMESPACE.validate_python(text)
    except ValidationError as error:
        raise typer.BadParameter(describe_refusal(error)[1], param_hint="--redis-namespace") from None


_NAMESPACE: TypeAdapter[str] = TypeAdapter(CacheNamespace)
_OPTIONS = TypeAdapter(dict[str, dict[str, Any]])


def scorer_options(text: str | None) -> dict[str, dict[str, Any]]:
    """Options by scorer, from JSON or from a file of JSON."""
    if text is None:
        return {}
    try:
        raw = text if text.lstrip().startswith("{") else Path(text).read_text(encoding="utf-8")
        return _OPTIONS.validate_python(json.loads(raw))
    except ValidationError as error:
        raise typer.BadParameter(": ".join(describe_refusal(error)), param_hint="--options") from None
    except (OSError, ValueError) as error:
        raise typer.BadParameter(f"is neither JSON nor a file of it: {error}", param_hint="--options") from None


def one_of(text: str, known: Sequence[str], option: str) -> Any:
    """The value, if it is one of the known ones."""
    if text not in known:
        raise typer.BadParameter(f"must be one of {', '.join(known)}", param_hint=option)
    return text
