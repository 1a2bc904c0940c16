"""`turnscore agreement`: what it prints."""

from dataclasses import replace

from turnscore_assessment.agreement.scoring import AgreementOptions
from turnscore_assessment.command_line import command_of, reported_errors
from turnscore_assessment.rendering import print_page


def run(options: AgreementOptions) -> None:
    """Measures, and prints the tables."""
    from turnscore_assessment.agreement.report import build_page, measure_file, write_agreement

    with reported_errors():
        report = measure_file(options)
        page = build_page(report)
        written = write_agreement(report, page, options.output)
    print_page(replace(page, summary=[report.explanation, f"wrote {', '.join(map(str, written))}"]))


agreement = command_of(AgreementOptions, run)
