"""`--version` of this distribution's commands."""

from typing import Annotated

from turnscore_models.version_option import version_option

DISTRIBUTION = "turnscore-assessment"
VersionOption = Annotated[bool, version_option(DISTRIBUTION)]
