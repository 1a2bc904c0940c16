"""What a worker's page shows, as JSON. Names no system, and nothing of another worker."""

import hashlib
from collections.abc import Sequence
from typing import Any

from turnscore_assessment.ratings.form import SpokenTurn
from turnscore_assessment.study.conversations import FAILURES_TO_GIVE_UP, Dialogue, Standing
from turnscore_assessment.study.plan import StudyPlan
from turnscore_assessment.study.workers import Worker


def hash_consent(plan: StudyPlan) -> str:
    """SHA-256 of the text that workers agree to."""
    return hashlib.sha256(plan.consent.encode()).hexdigest()


def show_study(plan: StudyPlan) -> dict[str, Any]:
    """The part that is the same for every worker."""
    return {
        "title": plan.title,
        "kind": plan.kind,
        "consent": split_paragraphs(plan.consent),
        "consent_hash": hash_consent(plan),
        "instructions": split_paragraphs(plan.instructions),
        "contact": plan.contact,
        "inputs_at_least": plan.chat.inputs_at_least,
        "inputs_at_most": plan.chat.inputs_at_most,
        "input_characters": plan.chat.input_characters,
        "criteria": [
            criterion.model_dump(include={"name", "statement", "low", "high", "low_end", "high_end"})
            for criterion in plan.criteria
        ],
    }


def show_standing(
    plan: StudyPlan, worker: Worker, standing: Standing, recorded: Sequence[SpokenTurn] | None
) -> dict[str, Any]:
    """Where the worker stands; the code and the thanks only at the end."""
    is_finished = worker.has_finished
    return {
        "agreed": worker.consent_hash is not None,
        "total": standing.total,
        "done": standing.done,
        "dialogue": _show_dialogue(standing.open, recorded) if standing.open else None,
        "finished": is_finished,
        "code": worker.code if is_finished else None,
        "thanks": split_paragraphs(plan.thanks) if is_finished else [],
    }


def split_paragraphs(text: str) -> list[str]:
    return [" ".join(part.split()) for part in text.replace("\r\n", "\n").split("\n\n") if part.strip()]


def _show_dialogue(dialogue: Dialogue, recorded: Sequence[SpokenTurn] | None) -> dict[str, Any]:
    if recorded is not None:
        said = [{"speaker": turn.speaker, "text": turn.text} for turn in recorded]
    else:
        said = [
            {"speaker": "system" if place % 2 else "user", "text": text} for place, text in enumerate(dialogue.texts)
        ]
    return {
        "id": dialogue.id,
        "number": dialogue.position + 1,
        "topic": dialogue.topic,
        "turns": said,
        "may_give_up": dialogue.failures >= FAILURES_TO_GIVE_UP,
    }
