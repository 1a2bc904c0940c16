"""`turnscore agreement`: what it prints."""

from turnscore_assessment.agreement.scoring import AgreementOptions
from turnscore_assessment.command_line import command_of, reported_errors
from turnscore_assessment.rendering import print_page


def run(options: AgreementOptions) -> None:
    """Measures, and prints the tables."""
    from turnscore_assessment.agreement.report import report_agreement

    with reported_errors():
        page = report_agreement(options)
    print_page(page)


agreement = command_of(AgreementOptions, run)
