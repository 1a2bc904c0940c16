"""Settings group: what every group of settings shares."""

from pydantic import BaseModel, ConfigDict


class SettingsGroup(BaseModel):
    """Read-only; a name that it does not have is refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")
