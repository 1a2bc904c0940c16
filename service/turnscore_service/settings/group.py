"""Reads what several groups of settings share: lists separated by commas, and bundles with their shares."""

from functools import partial
from typing import Annotated, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints
from pydantic_core import PydanticCustomError
from pydantic_settings import NoDecode


def _split(value: object) -> object:
    """The parts of a text, without those that are empty; anything else as it is."""
    return value if not isinstance(value, str) else tuple(filter(None, map(str.strip, value.split(","))))


_Part = TypeVar("_Part")
EMPTY_IS_NONE = BeforeValidator(lambda given: given or None)  # a Path would be "."
Listed = Annotated[tuple[_Part, ...], NoDecode, BeforeValidator(_split)]  # written with commas between


class SettingsGroup(BaseModel):
    """Read-only; a name that it does not have is refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


SHADOW_SHARE = 0.1  # the share of turns that a shadow scores where none is named


class VersionShare(SettingsGroup):
    """A bundle, and the share that it scores."""

    bundle: Annotated[str, StringConstraints(min_length=1)]
    share: Annotated[float, Field(ge=0, le=1)]


def _read_shares(default: float | None, value: object) -> object:
    """The bundles and shares of a text such as `engagement:1.1.0=0.1,fed:2=0.5`; anything but a text as it is.

    Raises PydanticCustomError for a share that is no number from 0 to 1, or is missing where there is no `default`;
    with one, 0 would be of no use and is refused.
    """
    if not isinstance(value, str):
        return value
    return tuple(_read_share(part, default) for part in filter(None, map(str.strip, value.split(","))))


def _read_share(part: str, default: float | None) -> VersionShare:
    bundle, separator, number = part.rpartition("=")
    if not separator:
        if default is None:
            raise _refusal(part, "needs a share, such as {part}=0.1")
        return VersionShare(bundle=part, share=default)
    try:
        share = float(number)
    except ValueError:
        raise _refusal(part, "must end with a share, such as 0.1") from None
    if not 0 <= share <= 1 or (share == 0 and default is not None):
        raise _refusal(part, f"must have a share {'from 0 to' if default is None else 'above 0 and at most'} 1")
    if not bundle.strip():
        raise _refusal(part, "must name a bundle before its share")
    return VersionShare(bundle=bundle.strip(), share=share)


def _refusal(part: str, why: str) -> PydanticCustomError:
    return PydanticCustomError("version_share", f"{{part}} {why}", {"part": part})


_Versions = Annotated[tuple[VersionShare, ...], NoDecode, Field(max_length=8)]
ShadowVersions = Annotated[_Versions, BeforeValidator(partial(_read_shares, SHADOW_SHARE))]
SplitVersions = Annotated[_Versions, BeforeValidator(partial(_read_shares, None))]
