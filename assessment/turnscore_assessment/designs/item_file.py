"""Items files: JSON lines of what is to be judged. Reads and checks one; makes no design."""

from pathlib import Path

from pydantic import ValidationError

from turnscore_assessment.designs.form import MOST_ITEMS, Item
from turnscore_assessment.errors import BadFileError
from turnscore_assessment.ratings.rating_file import describe_problem, read_lines


def read_items(path: Path) -> list[Item]:
    """The items in the file's order; BadFileError names the file, the line and the field."""
    items: list[Item] = []
    for number, record in read_lines(path):
        if len(items) == MOST_ITEMS:
            raise BadFileError(path, number, f"there are more than {MOST_ITEMS:,} items")
        try:
            items.append(Item.model_validate(record))
        except ValidationError as error:
            raise BadFileError(path, number, describe_problem(error)) from None
    if not items:
        raise BadFileError(path, 0, "has no item")
    return items
