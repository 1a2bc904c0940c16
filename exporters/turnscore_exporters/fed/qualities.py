"""FED's qualities: those of Mehri and Eskenazi 2020, the human-assessment paper's criteria, and a user's own file."""

import json
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError
from turnscore_assessment.errors import BadFileError
from turnscore_core.scorers.fed.options import Qualities

PUBLISHED_FILE = Path(__file__).with_name("qualities.json")
DEFAULT_SET = "fed"


class QualityFile(BaseModel):
    """Qualities, and named sets of them; without a set `fed`, all are asked by default."""

    model_config = ConfigDict(extra="forbid")

    qualities: Qualities
    sets: dict[str, list[str]] = {}

    @property
    def default(self) -> list[str]:
        """The qualities that a bundle asks where a request names none."""
        return self.sets.get(DEFAULT_SET) or list(self.qualities)


def read_qualities(path: Path = PUBLISHED_FILE) -> QualityFile:
    """Reads a file `{"qualities": {NAME: {"positive": [...], "negative": [...]}}}`; BadFileError where it is wrong."""
    try:
        return QualityFile.model_validate(json.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise BadFileError(path, 0, "cannot be read") from error
    except (ValidationError, json.JSONDecodeError) as error:
        raise BadFileError(path, 0, str(error)) from error
