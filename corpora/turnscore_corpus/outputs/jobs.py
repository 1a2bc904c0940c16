"""The job: everything that can change what a run writes. A folder belongs to one job."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from pydantic import JsonValue
from turnscore_core.dialogues import ModelIdentity

from turnscore_corpus.inputs.plan import Plan
from turnscore_corpus.outputs.manifests import digest_of

JOB_FILE = "job.json"
_MOST_NAMED = 5  # chosen: enough to see what kind of difference it is

Described = dict[str, Any]


def describe_job(
    plan: Plan,
    models: Mapping[str, ModelIdentity],
    options: Mapping[str, Mapping[str, JsonValue]],
    block_dialogues: int,
) -> Described:
    """The job as it is written beside its output. Holds no secret and no text."""
    columns = {} if not plan.blocks else asdict(plan.blocks[0].columns)
    described: Described = {
        "form": 1,
        "input": {
            each.file.place: {
                "format": each.file.format,
                "packing": each.file.packing,
                "size_bytes": each.size_bytes,
                "digest": each.digest,
                "rows": each.rows,
            }
            for each in plan.files
        },
        "order": [each.file.place for each in plan.files],
        "columns": columns,
        "block_dialogues": block_dialogues,
        "blocks": len(plan.blocks),
        "scorers": list(models),
        "models": {name: asdict(each) for name, each in models.items()},
        "options": {name: dict(each) for name, each in options.items()},
    }
    return dict(json.loads(json.dumps(described)))  # as JSON gives it back


def write_job(job: Described) -> bytes:
    """The job as JSON."""
    return json.dumps(job, indent=1, ensure_ascii=False).encode() + b"\n"


def job_digest(job: Described) -> str:
    """The digest that the job's manifests carry."""
    return digest_of(json.dumps(job, sort_keys=True).encode())


def find_differences(before: object, now: object, path: str = "") -> list[str]:
    """The differences by name: `models.engagement.digest was a..., is b...`; the first few, and how many more."""
    found = list(_differences(before, now, path))
    more = [f"and {len(found) - _MOST_NAMED} more"] if len(found) > _MOST_NAMED else []
    return [*found[:_MOST_NAMED], *more]


def _differences(before: object, now: object, path: str) -> Iterator[str]:
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        for name in [*before, *(each for each in now if each not in before)]:
            inner = f"{path}.{name}" if path else str(name)
            if name not in now:
                yield f"{inner} is missing"
            elif name not in before:
                yield f"{inner} is added"
            else:
                yield from _differences(before[name], now[name], inner)
    elif before != now:
        yield f"{path} was {_short(before)}, is {_short(now)}"


def _short(value: object) -> str:
    text = ", ".join(map(str, value)) if isinstance(value, Sequence) and not isinstance(value, str) else str(value)
    return text if len(text) <= 60 else f"{text[:60]}..."
