"""Live values from a file that `turnscore score` wrote, a service's /metrics, or a Prometheus. Keeps no text."""

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from itertools import pairwise
from math import ceil
from pathlib import Path
from typing import Annotated, Any

import httpx
import numpy as np
from prometheus_client.parser import text_string_to_metric_families
from pydantic import ConfigDict, Field, TypeAdapter, with_config
from turnscore_wire import Score

from turnscore_assessment.errors import AssessmentError, BadFileError
from turnscore_assessment.files import check_row, read_document, read_rows

BINS = 10  # Bins of percentiles: up to 10, up to 20 and so on.
_FORM = 1
_Count = Annotated[float, Field(ge=0, allow_inf_nan=False)]


@with_config(ConfigDict(extra="forbid"))
@dataclass(kw_only=True)
class LiveValues:
    """Counts of one scorer's bundle; floats, because Prometheus extrapolates."""

    scorer: str
    model: str
    bins: Annotated[list[_Count], Field(min_length=BINS, max_length=BINS)]
    dialogues: _Count = 0.0
    turns: _Count = 0.0
    low: _Count = 0.0
    labelled: _Count = 0.0
    cut: _Count = 0.0
    foreign: _Count = 0.0
    not_computable: _Count = 0.0
    tokens: _Count = 0.0
    chars: _Count = 0.0
    # Over dialogues, the sum of the products of any two bins' turns, which shows how alike a dialogue's turns are;
    # empty where dialogues were not counted one by one.
    products: list[Annotated[list[_Count], Field(min_length=BINS, max_length=BINS)]] = field(default_factory=list)

    @classmethod
    def empty(cls, scorer: str, model: str) -> "LiveValues":
        return cls(scorer=scorer, model=model, bins=[0.0] * BINS)

    def add(self, other: "LiveValues") -> None:
        """Adds the other's counts."""
        if not any(self.bins):
            self.products = other.products
        elif any(other.bins):
            both = bool(self.products and other.products)
            self.products = (np.array(self.products) + other.products).tolist() if both else []
        self.bins = [mine + its for mine, its in zip(self.bins, other.bins, strict=True)]
        for each in fields(self)[3:-1]:
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))


class CollectedValues:
    """Live values by scorer and model, in the order in which they came."""

    def __init__(self, found: Iterable[LiveValues] = ()) -> None:
        self._found: dict[tuple[str, str], LiveValues] = {}
        for each in found:
            self.of(each.scorer, each.model).add(each)

    def of(self, scorer: str, model: str) -> LiveValues:
        """The counts of one bundle, to be added to."""
        return self._found.setdefault((scorer, model), LiveValues.empty(scorer, model))

    def all(self) -> list[LiveValues]:
        """The counts of every bundle that scored turns."""
        return [each for each in self._found.values() if each.turns or each.not_computable or any(each.bins)]


def write_baseline(path: Path, values: Iterable[LiveValues]) -> None:
    """A baseline as JSON: counts alone."""
    path.write_text(json.dumps({"form": _FORM, "values": [asdict(each) for each in values]}, indent=1) + "\n")


def read_baseline(path: Path) -> list[LiveValues]:
    """The values that `write_baseline` wrote. Raises BadFileError."""
    content = read_document(path)
    if not isinstance(content, dict) or content.get("form") != _FORM:
        raise BadFileError(path, 0, "is not a baseline that turnscore drift wrote")
    return check_row(TypeAdapter(list[LiveValues]).validate_python, path, 0, content.get("values"), "values")


_SCORES = TypeAdapter(dict[str, Score])
_FOREIGN = "not_in_language"
_SYSTEM = ("system", "assistant")


def read_file(path: Path) -> list[LiveValues]:
    """The values of all rows. Raises BadFileError where a row's scores are wrong, or no row has any."""
    found = CollectedValues()
    for row, record in read_rows(path):
        dialogue = CollectedValues()
        begun: set[tuple[str, str]] = set()
        for place, sent in enumerate(_scored_of(record)):
            within = f"scores of scored turn {place + 1}"
            for name, score in check_row(_SCORES.validate_python, path, row, sent["scores"], within).items():
                values = dialogue.of(name, score.model)
                _count_score(values, score)
                if _begins(sent) and (name, score.model) not in begun:
                    begun.add((name, score.model))
                    values.dialogues += 1
        for values in dialogue.all():
            # A row of a single turn does not say which other rows are of its dialogue.
            if "scores" not in record:
                values.products = np.outer(values.bins, values.bins).tolist()
            found.of(values.scorer, values.model).add(values)
    if not found.all():
        raise BadFileError(path, 1, "has no scores: give a file that `turnscore score` wrote")
    return found.all()


def _scored_of(record: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The scored turns of a row, which is a dialogue or a turn."""
    turns = next((record[key] for key in ("turns", "messages") if isinstance(record.get(key), list)), None)
    for each in [record] if turns is None or "scores" in record else turns:
        if isinstance(each, dict) and each.get("scores"):
            yield each


def _begins(sent: Mapping[str, Any]) -> bool:
    """Whether the row has no system text before the turn."""
    before = sent.get("context", sent.get("messages"))
    if not isinstance(before, Sequence):
        return True
    earlier = before[:-1] if "context" not in sent else before
    return not any(isinstance(turn, dict) and turn.get("speaker", turn.get("role")) in _SYSTEM for turn in earlier)


def _count_score(values: LiveValues, score: Score) -> None:
    values.turns += 1
    if score.percentile is not None:
        values.bins[max(0, ceil(score.percentile * BINS / 100) - 1)] += 1
    if score.label is not None:
        values.labelled += 1
        values.low += score.label == "low"
    values.cut += score.tokens.dropped > 0
    values.foreign += _FOREIGN in score.warnings


_SECONDS = 30.0  # chosen: a query over weeks reads a lot
_BUCKET = "turnscore_score_percentile_bucket"
_COUNTED = {
    "turnscore_live_dialogues_total": "dialogues",
    "turnscore_cut_turns_total": "cut",
    "turnscore_not_computable_turns_total": "not_computable",
    "turnscore_live_tokens_total": "tokens",
    "turnscore_live_chars_total": "chars",
}
_LABELS: dict[str, tuple[str, ...]] = {"none": ("turns",), "low": ("turns", "labelled", "low")}
_LABELS |= dict.fromkeys(("fair", "good"), ("turns", "labelled"))
_TURNS = "turnscore_live_turns_total"
_WARNED = "turnscore_warned_turns_total"
SERIES = (_BUCKET, _TURNS, _WARNED, *_COUNTED)

Sample = tuple[str, Mapping[str, str], float]


def read_service(url: str) -> list[Sample]:
    """The samples of a service since it started; `url` is its address or that of its /metrics."""
    text = _get(url if url.rstrip("/").endswith("/metrics") else f"{url.rstrip('/')}/metrics").text
    try:
        families = list(text_string_to_metric_families(text))
    except ValueError as error:
        raise AssessmentError(f"{url} returned no metrics ({error})") from error
    return [(each.name, each.labels, each.value) for family in families for each in family.samples]


def query_prometheus(
    url: str, window: str, selector: str = "", tenant: str | None = None, totals: Sequence[str] = SERIES
) -> list[Sample]:
    """The samples' increase over the window, such as `14d`; `selector` picks series, such as `job="bot"`."""
    found: list[Sample] = []
    picked = ", ".join(filter(None, (selector, None if tenant is None else f"tenant={json.dumps(tenant)}")))
    [_, now] = _ask(url, query="time()")  # one instant for all series, by its own clock
    for series in totals:
        query = f"sum without (instance, pod, job, tenant) (increase({series}{{{picked}}}[{window}]))"
        found += [(series, each["metric"], float(each["value"][1])) for each in _ask(url, query=query, time=now)]
    return found


def query_least(url: str, series: str, window: str, selector: str = "") -> list[Sample]:
    """The least of a gauge's values within the window, over all replicas."""
    query = f"min without (instance, pod, job) (last_over_time({series}{{{selector}}}[{window}]))"
    return [(series, each["metric"], float(each["value"][1])) for each in _ask(url, query=query)]


def collect(samples: Iterable[Sample], tenant: str | None = None) -> list[LiveValues]:
    """The samples by scorer and model; those of one tenant, or all of them together."""
    found = CollectedValues()
    reached: dict[tuple[str, str], dict[float, float]] = {}
    for series, labels, value in samples:
        if series not in SERIES or not math.isfinite(value) or tenant not in (None, labels.get("tenant", "")):
            continue
        scorer, model = labels.get("scorer", ""), labels.get("model", "")
        if series == _BUCKET:
            steps = reached.setdefault((scorer, model), {})
            bound = float(labels["le"])
            steps[bound] = steps.get(bound, 0.0) + value
        else:
            _count_sample(found.of(scorer, model), series, labels, value)
    for (scorer, model), steps in reached.items():
        # Turns in each bin, from the cumulative counts.
        upto = [0.0, *(steps.get(100.0 * place / BINS, 0.0) for place in range(1, BINS + 1))]
        found.of(scorer, model).bins = [max(0.0, upper - lower) for lower, upper in pairwise(upto)]
    return found.all()


def _count_sample(values: LiveValues, series: str, labels: Mapping[str, str], value: float) -> None:
    if series == _TURNS:
        names = _LABELS.get(labels.get("label", ""), ())
    elif series == _WARNED:
        names = ("foreign",) if labels.get("warning") == "not_in_language" else ()
    else:
        names = (_COUNTED[series],)
    for name in names:
        setattr(values, name, getattr(values, name) + value)


def _get(url: str, **parameters: str) -> httpx.Response:
    try:
        reply = httpx.get(url, params=parameters or None, timeout=_SECONDS, follow_redirects=False)
        reply.raise_for_status()
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise AssessmentError(f"{url}: {error}") from error
    return reply


def _ask(url: str, **parameters: str) -> list[Any]:
    reply = _get(f"{url.rstrip('/')}/api/v1/query", **parameters)
    try:
        found: list[Any] = reply.json()["data"]["result"]
    except (ValueError, KeyError, TypeError) as error:
        raise AssessmentError(f"{url} did not answer as Prometheus does") from error
    return found
