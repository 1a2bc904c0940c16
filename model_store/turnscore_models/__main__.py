"""`python -m turnscore_models` is `turnscore-models`."""

from turnscore_models.cli import app

app()
