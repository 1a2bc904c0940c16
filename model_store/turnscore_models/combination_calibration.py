"""The file of a combination's percentiles: a calibration, and what it is of. Loads no bundle."""

from pydantic import Field, FiniteFloat

from turnscore_models.manifest import Calibration


class CombinationCalibration(Calibration):
    """The percentiles of a weighted sum of scorers' parts. Other versions, or weights, have others."""

    models: dict[str, str] = Field(
        default_factory=dict, description="By scorer the bundle that scored the turns, `name:version`; may be unknown."
    )
    weights: dict[str, FiniteFloat] = Field(default_factory=dict, description="By part; none where models has none.")
