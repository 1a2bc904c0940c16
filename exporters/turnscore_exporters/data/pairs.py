"""Query-reply pairs with an engagement label, and the CSV files that carry them."""

import csv
from dataclasses import dataclass
from pathlib import Path

from turnscore_assessment.errors import BadFileError


@dataclass(frozen=True, slots=True, kw_only=True)
class EngagementPair:
    """What one person said and the reply. An empty `query` means that the reply opens the dialogue."""

    query: str
    reply: str
    label: int
    dialogue_id: str = ""


def read_pair_csv(path: Path) -> list[EngagementPair]:
    """Reads the columns query, reply and label (0 or 1) of a CSV file; any other column is ignored.

    Raises BadFileError naming the file and the row (the header is row 1).
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file)
            missing = {"query", "reply", "label"} - set(reader.fieldnames or ())
            if missing:
                raise BadFileError(path, 1, f"lacks the column {', '.join(sorted(missing))}")
            return [_build_pair(record, path, row) for row, record in enumerate(reader, start=2)]
    except FileNotFoundError as error:
        raise BadFileError(path, 0, "the file does not exist") from error
    except UnicodeDecodeError as error:
        raise BadFileError(path, 0, f"is not UTF-8 ({error.reason})") from error
    except csv.Error as error:
        raise BadFileError(path, reader.line_num + 1, f"is no CSV that can be read ({error})") from error


def _build_pair(record: dict[str, str | None], path: Path, row: int) -> EngagementPair:
    query, reply, label = record["query"], record["reply"], record["label"]
    if query is None or reply is None:
        raise BadFileError(path, row, "has too few columns")
    if label not in ("0", "1"):
        raise BadFileError(path, row, f"has label {label!r}, expected 0 or 1")
    return EngagementPair(
        query=query.strip(), reply=reply.strip(), label=int(label), dialogue_id=f"{path.stem}:{record.get('id') or row}"
    )
