"""A run of `turnscore judge`: what is asked, what the scorer answers, and the rows that come of both."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from turnscore_assessment.files import write_rows
from turnscore_assessment.judging.asking import Ledger
from turnscore_assessment.judging.report import MarkStatistics
from turnscore_assessment.judging.rubric import Rubric
from turnscore_assessment.judging.stand_in import StandIn
from turnscore_assessment.judging.turns import (
    RESPONSE_CHARACTERS,
    Marks,
    Response,
    Row,
    describe_response,
    drop_marks,
    read_responses,
)

SCORED_AT_ONCE = 256  # Responses that a scorer gets together. Chosen: batches of like length, and answers are kept.


@dataclass
class Collection:
    """The responses of a file that are judged, and what is known of them."""

    file: Path
    rubric: Rubric
    ledger: Ledger
    models: list[str]
    share: float = 1.0
    stand_in: StandIn | None = None
    too_long: list[int] = field(default_factory=list)  # Lines of responses that no judge reads.

    def responses(self) -> Iterator[Response]:
        """The responses that may be judged."""
        self.too_long = []
        for row in read_responses(self.file, self.share):
            self.too_long += [row.line for each in row.responses if len(each.text) > RESPONSE_CHARACTERS]
            yield from (each for each in row.responses if len(each.text) <= RESPONSE_CHARACTERS)

    def score(self, advance: Callable[[int], None]) -> None:
        """Gets the stand-in's marks of all responses into the ledger."""
        waiting = self.responses()
        while self.stand_in and (block := list(islice(waiting, SCORED_AT_ONCE))):
            for criterion, scorer in self.stand_in.keys.items():
                known = self.ledger.marks.get(scorer, {})
                if lacking := {each.key: each for each in block if each.key not in known}:
                    self.ledger.add(scorer, self.stand_in.score(criterion, [*lacking.values()]))
            advance(len(block))

    def to_ask(self) -> Iterator[Response]:
        """The responses that judges are asked about: all, or those that the scorer is unsure of."""
        return (each for each in self.responses() if self._is_asked(each))

    def _is_asked(self, each: Response) -> bool:
        return self.stand_in is None or self.stand_in.is_unsure(self.ledger.marks, each.key)

    def write(self, output: Path, statistics: MarkStatistics) -> int:
        """Writes the rows that have a mark; returns how many marks of judges are lacking."""
        # By the name in the ledger, the name in the rows.
        scorers = (
            {self.stand_in.keys[name]: each for name, each in self.stand_in.names.items()} if self.stand_in else {}
        )
        models = {name: name for name in (*self.models, *self.ledger.tokens)}
        common = {"rubric": self.rubric.sha256, "scales": self.rubric.scales, "models": [*models, *scorers.values()]}
        lacking = 0

        def find_marks(names: dict[str, str], key: str) -> dict[str, Marks]:
            known = {shown: self.ledger.marks.get(name, {}).get(key) for name, shown in names.items()}
            return {name: marks for name, marks in known.items() if marks}

        def describe(row: Row, each: Response) -> dict[str, Any]:
            nonlocal lacking
            is_asked = self._is_asked(each)
            if is_asked and len(each.text) <= RESPONSE_CHARACTERS:
                lacking += sum(self.ledger.lacks(judge, each.key) for judge in self.models)
            marks = find_marks(models, each.key)
            judges = len(marks)
            if not marks and not is_asked:
                marks = find_marks(scorers, each.key)
            response = describe_response(drop_marks(each.fields, self.rubric.criteria), marks, judges)
            statistics.add(row.dialogue, response, self.ledger.find_places(each.key))
            return response

        def rows() -> Iterator[dict[str, Any]]:
            for row in read_responses(self.file, self.share):
                responses = [describe(row, each) for each in row.responses]
                if any(each["marks"] for each in responses):
                    yield row.to_json(responses, **common)

        write_rows(output, rows())
        return lacking
