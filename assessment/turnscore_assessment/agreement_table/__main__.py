"""`python -m turnscore_assessment.agreement_table` writes the page."""

from turnscore_assessment.agreement_table.command import app

app(prog_name="python -m turnscore_assessment.agreement_table")
