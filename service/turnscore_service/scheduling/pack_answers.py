"""Pack answers: what a computed pack says of each of its turns, pieces of one turn put together. Waits for nothing."""

from dataclasses import replace
from typing import cast

from turnscore_core.errors import FailedScoringError
from turnscore_core.scorers.scorer import MergesPieces, RawScore, Scorer, TokenPack


class PieceCollector:
    """Puts the scores of turns together that several packs answer."""

    def __init__(self, scorer: Scorer) -> None:
        self._scorer = scorer
        self._pieces: dict[int, list[RawScore]] = {}

    def take(self, pack: TokenPack, number: int, raw: RawScore | FailedScoringError) -> RawScore | None:
        """The score of the pack's answer of that number, with the pack's warnings; None while packs of it are missing.

        Raises the FailedScoringError that stands in the score's place, and what merging raises.
        """
        if isinstance(raw, FailedScoringError):
            raise raw
        whole = self._merge(pack, pack.answers[number], raw)
        warnings = pack.warnings[number] if pack.warnings else ()
        return replace(whole, warnings=warnings) if whole is not None and warnings else whole

    def _merge(self, pack: TokenPack, place: int, raw: RawScore) -> RawScore | None:
        if pack.pieces == 1:
            return raw
        pieces = self._pieces.setdefault(place, [])
        pieces.append(raw)
        if len(pieces) < pack.pieces:
            return None
        return cast("MergesPieces", self._scorer).merge(pack, self._pieces.pop(place))
