"""A run of `turnscore judge`: what is asked, what the scorer answers, and the rows that come of both."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from turnscore_assessment.files import write_rows
from turnscore_assessment.judging.importing import describe_response
from turnscore_assessment.judging.ledger import Ledger
from turnscore_assessment.judging.report import MarkStatistics
from turnscore_assessment.judging.rubric import Rubric
from turnscore_assessment.judging.stand_in import StandIn
from turnscore_assessment.judging.turns import RESPONSE_CHARACTERS, Marks, Response, Row, choose_share, read_responses

SCORED_AT_ONCE = 256  # Responses that a scorer gets together. Chosen: batches of like length, and answers are kept.


@dataclass
class Collection:
    """The responses of a file that are judged, and what is known of them."""

    file: Path
    rubric: Rubric
    ledger: Ledger
    models: Sequence[str]
    share: float = 1.0
    stand_in: StandIn | None = None
    too_long: list[int] = field(default_factory=list)  # Lines of responses that no judge reads.

    def rows(self) -> Iterator[Row]:
        """The chosen rows, read from the file."""
        return filter(choose_share(self.share), read_responses(self.file))

    def responses(self) -> Iterator[Response]:
        """The responses that may be judged."""
        self.too_long = []
        for row in self.rows():
            for each in row.responses:
                if len(each.text) <= RESPONSE_CHARACTERS:
                    yield each
                else:
                    self.too_long.append(row.line)

    def score(self, advance: Callable[[int], None]) -> None:
        """Gets the stand-in's marks of all responses into the ledger."""
        if self.stand_in is None:
            return
        waiting = self.responses()
        while block := list(islice(waiting, SCORED_AT_ONCE)):
            for criterion, scorer in self.stand_in.names.items():
                known = self.ledger.marks.get(scorer, {})
                lacking = {each.key: each for each in block if each.key not in known}
                if lacking:
                    self.ledger.add(scorer, self.stand_in.score(criterion, [*lacking.values()]))
            advance(len(block))

    def to_ask(self) -> Iterator[Response]:
        """The responses that judges are asked about: all, or those that the scorer is unsure of."""
        if self.stand_in is None:
            return self.responses()
        is_unsure = self.stand_in.is_unsure
        return (each for each in self.responses() if is_unsure(self.ledger.marks, each.key))

    def write(self, output: Path, statistics: MarkStatistics) -> int:
        """Writes the rows that have a mark; returns how many marks of judges are lacking."""
        self._lacking = 0
        scorers = dict.fromkeys(self.stand_in.names.values()) if self.stand_in else {}
        models = [name for name in dict.fromkeys((*self.models, *self.ledger.marks)) if name not in scorers]
        common = {"rubric": self.rubric.sha256, "scales": self.rubric.scales, "models": [*models, *scorers]}

        def rows() -> Iterator[dict[str, Any]]:
            for row in self.rows():
                responses = [self._describe(row, each, models, [*scorers], statistics) for each in row.responses]
                if any(each["marks"] for each in responses):
                    yield row.to_json(responses, **common)

        write_rows(output, rows())
        return self._lacking

    def _describe(
        self, row: Row, each: Response, models: Sequence[str], scorers: Sequence[str], statistics: MarkStatistics
    ) -> dict[str, Any]:
        """A response with its marks: those of judges, or where there is none those of the scorers."""
        known = self.ledger.marks
        is_asked = self.stand_in is None or self.stand_in.is_unsure(known, each.key)
        if is_asked and len(each.text) <= RESPONSE_CHARACTERS:
            self._lacking += sum(self.ledger.lacks(judge, each.key) for judge in self.models)
        marks: dict[str, Marks] = {name: known[name][each.key] for name in models if known.get(name, {}).get(each.key)}
        judges = len(marks)
        if not marks and not is_asked:
            marks = {name: known[name][each.key] for name in scorers}
        other = {name: value for name, value in each.other.items() if name not in ("marks", "judges")}
        response = describe_response(each.text, marks, each.people, other) | {"judges": judges}
        places = {name: self.ledger.places[name][each.key] for name in marks if name in models}
        statistics.add(row.dialogue, response, places)
        return response
