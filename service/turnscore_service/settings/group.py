"""Settings group: what every group of settings shares."""

from pydantic import BaseModel, ConfigDict


def split_at_commas(value: object) -> object:
    """The parts of a text, without those that are empty; anything else as it is."""
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    return value


class SettingsGroup(BaseModel):
    """Read-only; a name that it does not have is refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")
