"""One run of `turnscore-agreement`: reads the file, has it scored, measures, writes. Prints nothing."""

import asyncio
import hashlib
import json
import shlex
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from turnscore_client import AsyncTurnScoreClient

from turnscore_assessment.agreement.bundles import load_bundles, score_with_bundle
from turnscore_assessment.agreement.data import JudgedDialogue, drop_empty_turns, read_judged_dialogues
from turnscore_assessment.agreement.measurement import measure
from turnscore_assessment.agreement.observations import choose_parts, find_levels, observe
from turnscore_assessment.agreement.plot import draw_scatter
from turnscore_assessment.agreement.report import AgreementReport, MeasuredLevel, format_markdown, to_json
from turnscore_assessment.agreement.scores import Advance, ScoredFile
from turnscore_assessment.agreement.service import score_with_service
from turnscore_assessment.errors import AgreementError

ShowProgress = Callable[[str, int], AbstractContextManager[Advance]]
"""Opens a progress bar with a title and a number of dialogues."""


@dataclass(frozen=True)
class AgreementJob:
    """What was asked for. Without bundles the service is asked that `open_client` reaches."""

    file: Path
    form: str
    scorers: Sequence[str]
    parts: Sequence[str]
    bundles: Sequence[str]
    open_client: Callable[[], AsyncTurnScoreClient]
    concurrency: int
    level: str
    rounds: int
    seed: int

    @property
    def command(self) -> str:
        """The command that gives the same figures, whatever the file and the bundles are called elsewhere."""
        options = [("--form", self.form)] if self.form != "judged" else []
        options += [("--scorer", name) for name in self.scorers]
        options += [("--part", name) for name in self.parts if len(self.parts) > 1 or name != "value"]
        options += [("--bundle", Path(name).name) for name in self.bundles]
        options += [("--level", self.level), ("--bootstrap", str(self.rounds)), ("--seed", str(self.seed))]
        words = [word for option in options for word in option]
        return shlex.join(["turnscore-agreement", self.file.name, *words])


def run_agreement_job(job: AgreementJob, show_progress: ShowProgress) -> AgreementReport:
    """The figures. Raises BadDataError for the file, AgreementError for what cannot be scored or measured."""
    read = read_judged_dialogues(job.file, job.form)
    dialogues = [dialogue for dialogue in map(drop_empty_turns, read) if dialogue.is_judged]
    try:
        levels, left_out = find_levels(dialogues, job.level)
    except AgreementError as error:
        raise AgreementError(f"{job.file}: {error}") from None
    scored = _score(job, dialogues, show_progress)
    chosen = choose_parts(scored, job.parts)
    observed = [observe(dialogues, chosen, level) for level in levels]
    return AgreementReport(
        file=job.file.name,
        sha256=hashlib.sha256(job.file.read_bytes()).hexdigest(),
        command=job.command,
        date=datetime.now(UTC).date().isoformat(),
        rounds=job.rounds,
        seed=job.seed,
        scored=scored,
        levels=[MeasuredLevel(each, measure(each, job.rounds, job.seed)) for each in observed],
        left_out=[*_count_empty(read), *left_out],
    )


def write_report(report: AgreementReport, folder: Path) -> list[Path]:
    """Writes `agreement.json`, `agreement.md` and `agreement.png`, replacing what is there; gives their places."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"agreement.{suffix}" for suffix in ("json", "md", "png")]
    paths[0].write_text(json.dumps(to_json(report), indent=2, allow_nan=False) + "\n", encoding="utf-8")
    paths[1].write_text(format_markdown(report), encoding="utf-8")
    draw_scatter(report.levels, paths[2])
    return paths


def _count_empty(dialogues: Sequence[JudgedDialogue]) -> list[str]:
    empty = sum(len(each.turn_qualities) - len(drop_empty_turns(each).turn_qualities) for each in dialogues)
    return [f"{empty} judged turns without text, which the service refuses to score"] if empty else []


def _score(job: AgreementJob, dialogues: Sequence[JudgedDialogue], show_progress: ShowProgress) -> list[ScoredFile]:
    names = list(dict.fromkeys(job.scorers))
    if not job.bundles:
        return asyncio.run(_ask_service(job, names, dialogues, show_progress))
    loaded = load_bundles(job.bundles)
    for name in names:
        if name not in loaded:
            raise AgreementError(f"no bundle of scorer {name!r} was given; given: {', '.join(loaded)}")
    scored = []
    for name in names:
        with show_progress(name, len(dialogues)) as advance:
            scored.append(score_with_bundle(loaded[name], dialogues, advance))
    return scored


async def _ask_service(
    job: AgreementJob, names: Sequence[str], dialogues: Sequence[JudgedDialogue], show_progress: ShowProgress
) -> list[ScoredFile]:
    async with job.open_client() as client:
        with show_progress(", ".join(names), len(dialogues)) as advance:
            return await score_with_service(client, names, dialogues, job.concurrency, advance)
