"""`turnscore agreement`: what it prints."""

from turnscore_assessment.agreement.scoring import AgreementOptions
from turnscore_assessment.command_line import command_of
from turnscore_assessment.rendering import print_page


def run(options: AgreementOptions) -> None:
    """Measures, and prints the tables."""
    from turnscore_assessment.agreement.report import report_agreement

    print_page(report_agreement(options))


agreement = command_of(AgreementOptions, run)
