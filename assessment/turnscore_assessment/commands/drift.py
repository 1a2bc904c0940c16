"""`turnscore drift`: keeps baselines and reports drift. Measures nothing itself."""

import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from turnscore_assessment.command_line import reported_errors
from turnscore_assessment.errors import AssessmentError
from turnscore_assessment.files import write_text
from turnscore_assessment.rendering import print_page, to_html

if TYPE_CHECKING:
    from turnscore_assessment.drift.sources import LiveValues


app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)

_SOURCE = "From"
Metrics = Annotated[
    list[str] | None,
    Option("--metrics", help="Address of a service: its counts since it started; repeatable.",
                 rich_help_panel=_SOURCE),
]  # fmt: skip
Prometheus = Annotated[
    str | None, Option(help="Address of a Prometheus that scrapes the service.", rich_help_panel=_SOURCE)
]
Scores = Annotated[
    list[Path] | None,
    Option("--scores", exists=True, dir_okay=False, help="A file that `turnscore score` wrote; repeatable.",
                 rich_help_panel=_SOURCE),
]  # fmt: skip
Window = Annotated[str, Option(help="How far back to query a Prometheus, such as 14d.", rich_help_panel=_SOURCE)]
Selector = Annotated[
    str, Option(help='Labels of the series to query in a Prometheus, such as job="bot".', rich_help_panel=_SOURCE)
]
Tenant = Annotated[
    str | None, Option(help="Only this tenant's turns, of metrics with tenants.",
                             rich_help_panel=_SOURCE)
]  # fmt: skip


@app.callback()
def drift() -> None:
    """Report whether a bot's scores have drifted; docs/compare.md says how, and how surely."""


@app.command()
def baseline(
    output: Annotated[Path, Argument(dir_okay=False, help="File for the baseline: counts as JSON, no text.")],
    metrics: Metrics = None,
    prometheus: Prometheus = None,
    scores: Scores = None,
    window: Window = "14d",
    selector: Selector = "",
    tenant: Tenant = None,
    rules: Annotated[
        Path | None, Option(dir_okay=False, help="Also write recording rules for Prometheus to this file.")
    ] = None,
) -> None:
    """Keep how a bot's scores fall in weeks of which you know that they were good."""
    from turnscore_assessment.drift.report import make_rules
    from turnscore_assessment.drift.sources import write_baseline

    with reported_errors(OSError):
        found = _gather(metrics, prometheus, scores, window, selector, tenant)
        write_baseline(output, found)
        if rules is not None:
            rules.write_text(make_rules(found))
    for each in found:
        typer.echo(f"{each.model}: {each.dialogues:,.0f} dialogues, {each.turns:,.0f} turns")


@app.command()
def report(
    metrics: Metrics = None,
    prometheus: Prometheus = None,
    scores: Scores = None,
    window: Window = "1d",
    selector: Selector = "",
    tenant: Tenant = None,
    against: Annotated[
        Path | None, Option("--baseline", exists=True, dir_okay=False, help="What `baseline` wrote.")
    ] = None,
    html: Annotated[Path | None, Option(dir_okay=False, help="Also write an HTML page to this file.")] = None,
    check: Annotated[bool, Option("--check", help="Exit with status 3 if anything drifted.")] = False,
) -> None:
    """Compare live scores with the bundle's curve, and with a baseline."""
    from turnscore_assessment.drift.report import build_page, find_drift
    from turnscore_assessment.drift.sources import read_baseline

    with reported_errors(OSError):
        live = _gather(metrics, prometheus, scores, window, selector, tenant)
        findings = find_drift(live, () if against is None else read_baseline(against))
    page = build_page(findings, _command_line())
    if html is not None:
        write_text(html, to_html(page))
    print_page(replace(page, sections=page.sections[:1]))
    if check and any(each.has_drifted for each in findings):
        raise typer.Exit(3)


@app.command()
def shadow(
    metrics: Metrics = None,
    prometheus: Prometheus = None,
    window: Window = "1d",
    selector: Selector = "",
    html: Annotated[Path | None, Option(dir_okay=False, help="Also write an HTML page to this file.")] = None,
) -> None:
    """Report what a version that shadows the served one would change; docs/rollouts.md."""
    from turnscore_assessment.drift.report import CORRELATION, TOTALS, build_shadow_page, collect_shadows
    from turnscore_assessment.drift.sources import query_least, query_prometheus, read_service

    if bool(metrics) == bool(prometheus):
        raise typer.BadParameter("give one of --metrics and --prometheus")
    _check_selector(prometheus, selector)
    with reported_errors(OSError):
        if prometheus:
            samples = query_prometheus(prometheus, window, selector, totals=TOTALS)
            samples += query_least(prometheus, CORRELATION, window, selector)
        else:
            samples = [each for url in metrics or () for each in read_service(url)]
        found = collect_shadows(samples)
        if not found:
            raise AssessmentError("no turn was compared there: TURNSCORE_SHADOW names no version, or nothing was said")
    page = build_shadow_page(found, _command_line())
    if html is not None:
        write_text(html, to_html(page))
    print_page(page)


def _command_line() -> str:
    return shlex.join(["turnscore", *sys.argv[1:]])


def _check_selector(prometheus: str | None, selector: str) -> None:
    if selector and not prometheus:
        raise typer.BadParameter(
            "goes with --prometheus; a service and a file have no such labels", param_hint="--selector"
        )


def _gather(
    metrics: list[str] | None,
    prometheus: str | None,
    scores: list[Path] | None,
    window: str,
    selector: str,
    tenant: str | None,
) -> "list[LiveValues]":
    """The values from the one source that was given."""
    from turnscore_assessment.drift.sources import Collection, collect, query_prometheus, read_file, read_service

    if sum(map(bool, (metrics, prometheus, scores))) != 1:
        raise typer.BadParameter("give one of --metrics, --prometheus and --scores")
    _check_selector(prometheus, selector)
    if scores:
        if tenant is not None:
            raise typer.BadParameter("a file of scores names no tenants", param_hint="--tenant")
        found = Collection(each for path in scores for each in read_file(path)).all()
    elif prometheus:
        found = collect(query_prometheus(prometheus, window, selector, tenant))
    else:
        found = collect([each for url in metrics or () for each in read_service(url)], tenant)
    if not found:
        raise AssessmentError("no turns that were said are counted there")
    return found
