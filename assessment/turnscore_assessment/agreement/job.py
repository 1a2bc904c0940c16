"""One run of `turnscore-agreement`: reads the file, has it scored, measures, writes. Prints nothing."""

import hashlib
import json
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from turnscore_client import AsyncTurnScoreClient

from turnscore_assessment.agreement.data import JudgedDialogue, drop_empty_turns, read_judged_dialogues
from turnscore_assessment.agreement.measurement import measure
from turnscore_assessment.agreement.observations import choose_parts, find_levels, observe
from turnscore_assessment.agreement.plot import draw_scatter
from turnscore_assessment.agreement.report import AgreementReport, MeasuredLevel, format_markdown, to_json
from turnscore_assessment.agreement.scoring import ScorerChoice, ShowProgress, score_dialogues
from turnscore_assessment.errors import AgreementError


@dataclass(frozen=True, kw_only=True)
class AgreementJob:
    """The command's options. Without bundles, `open_client` opens the service that scores."""

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
    def choice(self) -> ScorerChoice:
        return ScorerChoice(
            scorers=self.scorers, bundles=self.bundles, open_client=self.open_client, concurrency=self.concurrency
        )

    @property
    def command(self) -> str:
        """The command that gives the same figures, with names in place of local paths."""
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
    scored = score_dialogues(job.choice, dialogues, show_progress)
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
    """Writes `agreement.json`, `agreement.md` and `agreement.png`, replacing old ones; returns their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"agreement.{suffix}" for suffix in ("json", "md", "png")]
    paths[0].write_text(json.dumps(to_json(report), indent=2, allow_nan=False) + "\n", encoding="utf-8")
    paths[1].write_text(format_markdown(report), encoding="utf-8")
    draw_scatter(report.levels, paths[2])
    return paths


def _count_empty(dialogues: Sequence[JudgedDialogue]) -> list[str]:
    empty = sum(len(each.turn_qualities) - len(drop_empty_turns(each).turn_qualities) for each in dialogues)
    return [f"{empty} judged turns without text: the service refuses to score them"] if empty else []
