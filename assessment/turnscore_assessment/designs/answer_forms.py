"""The form of an answer, by design: checks a rater's answer and converts it to numbers. Reads no file."""

from collections.abc import Mapping
from typing import Any

from turnscore_assessment.designs.form import DesignKey, DesignKind, Question, Scale

BEST, MIDDLE, WORST = 1.0, 2.0, 3.0
"""Ranks of best-worst answers: all options between share one."""
TIE = 1.5


class BadAnswerError(ValueError):
    """An answer has a wrong form; the message begins with the rest of the field's name."""


def read_answer(key: DesignKey, question: Question, given: Mapping[str, Any]) -> dict[str, float]:
    """The number, or the rank of a choice, by option; empty for an unanswered question. Raises BadAnswerError."""
    if key.design is DesignKind.BEST_WORST:
        return _read_best_worst(question, given)
    if key.design is DesignKind.PAIRWISE:
        return _read_pairwise(question, given)
    unknown = [option for option in given if option not in question.options]
    if unknown:
        raise BadAnswerError(f".{unknown[0]}: is not an option of this question")
    answered = {option: value for option, value in given.items() if value is not None}
    if key.design is DesignKind.RANKING:
        return _read_ranking(question, answered)
    assert key.scale is not None
    return {option: _read_number(option, value, key.scale) for option, value in answered.items()}


def read_cells(key: DesignKey, cells: Mapping[str, str]) -> dict[str, Any]:
    """Converts the cells of a CSV sheet, one per option, to the form of a JSON-lines sheet. Raises BadAnswerError."""
    filled = {option: cell.lower() for option, cell in cells.items() if cell}
    if key.design is DesignKind.PAIRWISE:
        _refuse_words(filled, ("better", "tie"))
        better = [option for option, word in filled.items() if word == "better"]
        if len(better) > 1 or (better and len(filled) > 1):
            raise BadAnswerError(": says `better` or `tie` more than once")
        return {"better": better[0] if better else "tie" if filled else None}
    if key.design is DesignKind.BEST_WORST:
        _refuse_words(filled, ("best", "worst"))
        found: dict[str, str | None] = {"best": None, "worst": None}
        for option, word in filled.items():
            if found[word] is not None:
                raise BadAnswerError(f": says `{word}` more than once")
            found[word] = option
        return found
    return {option: _parse(option, cell) for option, cell in filled.items()}


def _refuse_words(filled: Mapping[str, str], known: tuple[str, str]) -> None:
    for option, word in filled.items():
        if word not in known:
            raise BadAnswerError(f".{option}: must be `{known[0]}` or `{known[1]}`, not {word[:40]!r}")


def _parse(option: str, cell: str) -> float:
    try:
        return float(cell)
    except ValueError:
        raise BadAnswerError(f".{option}: must be a number, not {cell[:40]!r}") from None


def _read_number(option: str, value: object, scale: Scale) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadAnswerError(f".{option}: must be a number")
    if not scale.low <= value <= scale.high:
        raise BadAnswerError(f".{option}: {str(value)[:20]} is not within {scale.low:g} and {scale.high:g}")
    if scale.whole and value != int(value):
        raise BadAnswerError(f".{option}: must be a whole number, not {value:g}")
    return float(value)


def _read_ranking(question: Question, answered: Mapping[str, Any]) -> dict[str, float]:
    ranks = Scale(low=1, high=len(question.options), whole=True)
    read = {option: _read_number(option, value, ranks) for option, value in answered.items()}
    if read and sorted(read.values()) != list(range(1, len(question.options) + 1)):
        raise BadAnswerError(f": must give each rank from 1 to {len(question.options)} once")
    return read


def _read_best_worst(question: Question, given: Mapping[str, Any]) -> dict[str, float]:
    best, worst = given.get("best"), given.get("worst")
    if best is None and worst is None:
        return {}
    for name, option in (("best", best), ("worst", worst)):
        if option not in question.options:
            raise BadAnswerError(f".{name}: must name an option of this question")
    if best == worst:
        raise BadAnswerError(".worst: must differ from the best one")
    return {option: BEST if option == best else WORST if option == worst else MIDDLE for option in question.options}


def _read_pairwise(question: Question, given: Mapping[str, Any]) -> dict[str, float]:
    better = given.get("better")
    if better is None:
        return {}
    if better == "tie":
        return dict.fromkeys(question.options, TIE)
    if better not in question.options:
        raise BadAnswerError(".better: must name an option of this question, or `tie`")
    return {option: 1.0 if option == better else 2.0 for option in question.options}
