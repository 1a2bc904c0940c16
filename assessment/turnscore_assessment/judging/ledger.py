"""What judges answered, on disk before the next call: a file beside the output, by hashes of turns, without texts."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from turnscore_client._files.rows import NotOurOutputError, RowOutput, open_rows

from turnscore_assessment.errors import AssessmentError, BadFileError
from turnscore_assessment.judging.rubric import Rubric
from turnscore_assessment.judging.turns import Marks

Tokens = tuple[int, int]  # Of what was sent, and of what came back.


class Ledger:
    """Every judge's marks by the turn's key, the places of turns in their calls, and the tokens that were used.

    A line is a call, its turns in the order in which they were sent; a turn without an answer has no marks.
    """

    def __init__(self, rubric: Rubric, rows: RowOutput, path: Path) -> None:
        self._rubric, self._rows = rubric, rows
        self.marks: dict[str, dict[str, Marks]] = {}
        self.places: dict[str, dict[str, int]] = {}
        self.tokens: dict[str, Tokens] = {}  # By judge; none by a scorer that stands in for one.
        self._lines = 0
        for row in rows.rows():
            self._lines += 1
            if self._lines == 1 and row.get("rubric") != rubric.sha256:
                raise BadFileError(
                    path, 1, "was made with another rubric, and marks of two do not mix: give another -o"
                )
            if self._lines > 1:
                self._take(row)

    def add(self, judge: str, answers: Mapping[str, Marks], tokens: Tokens | None = None) -> None:
        """Keeps the answers of a call, or of a scorer, which needs no tokens."""
        row = {"judge": judge, "answers": answers, "tokens": tokens}
        if not self._lines:  # Until something is answered, there is no file, and the rubric may change.
            self._lines = 1
            self._rows.append({"line": 1, "rubric": self._rubric.sha256})
        self._lines += 1
        self._rows.append({"line": self._lines, **row})
        self._take(row)

    def lacks(self, judge: str, key: str) -> bool:
        """Whether the judge has not marked the turn for every criterion."""
        return len(self.marks.get(judge, {}).get(key, ())) < len(self._rubric.criteria)

    def find_places(self, key: str) -> dict[str, int]:
        """The turn's place in its call, for each judge that marked it."""
        return {name: self.places[name][key] for name in self.tokens if key in self.places[name]}

    def _take(self, row: Mapping[str, Any]) -> None:
        judge = row["judge"]
        marks, places = self.marks.setdefault(judge, {}), self.places.setdefault(judge, {})
        for place, (key, found) in enumerate(row["answers"].items(), start=1):
            if found:  # What was marked stays when the turn is asked again for the rest.
                marks[key] = {**found, **marks.get(key, {})}
                places.setdefault(key, place)
        if row["tokens"]:
            known = self.tokens.get(judge, (0, 0))
            self.tokens[judge] = known[0] + row["tokens"][0], known[1] + row["tokens"][1]


@contextmanager
def open_ledger(output: Path, rubric: Rubric) -> Iterator[Ledger]:
    """The ledger of an output, which no other run writes meanwhile; a last line that was cut off is taken away.

    Raises AssessmentError where the file is another's, or of another rubric.
    """
    path = ledger_path(output)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open_rows(path) as rows:
            yield Ledger(rubric, rows, path)
    except NotOurOutputError as error:
        raise AssessmentError(f"{path} {error}") from None


def ledger_path(output: Path) -> Path:
    """`out.jsonl` and `out.jsonl.gz` have `out.answers.jsonl`."""
    return output.with_name(f"{output.name.removesuffix('.gz').removesuffix('.jsonl')}.answers.jsonl")
