"""`turnscore drift`: keeps baselines and reports drift. Measures nothing itself."""

import shlex
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from turnscore_assessment.command_line import command_of, file_option
from turnscore_assessment.errors import AssessmentError
from turnscore_assessment.files import write_text
from turnscore_assessment.rendering import Page, print_page, to_html

if TYPE_CHECKING:
    from turnscore_assessment.drift.sources import LiveValues


app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)


def _source(said: str, **more: Any) -> Any:
    return Option(help=said, rich_help_panel="From", **more)


@dataclass(frozen=True, kw_only=True)
class MetricsSource:
    """Where a service's metrics are read."""

    metrics: Annotated[list[str] | None, _source("Address of a service: counts since its start; repeatable.")] = None
    prometheus: Annotated[str | None, _source("Address of a Prometheus that scrapes the service.")] = None
    window: Annotated[str, _source("How far back to query a Prometheus, such as 14d.")] = "1d"
    selector: Annotated[str, _source('Labels of the series to query in a Prometheus, such as job="bot".')] = ""


_FILE = "A file that `turnscore score` wrote; repeatable."


@dataclass(frozen=True, kw_only=True)
class ScoreSource(MetricsSource):
    """Where scores of live turns are read."""

    scores: Annotated[list[Path] | None, _source(_FILE, exists=True, dir_okay=False)] = None
    tenant: Annotated[str | None, _source("Only this tenant's turns, of metrics with tenants.")] = None


@dataclass(frozen=True, kw_only=True)
class BaselineOptions(ScoreSource):
    """Save a baseline of score distributions from a period known to be good."""

    output: Annotated[Path, Argument(dir_okay=False, help="File for the baseline: counts as JSON, no text.")]
    window: Annotated[str, _source("How far back to query a Prometheus, such as 14d.")] = "14d"
    rules: Annotated[Path | None, Option(dir_okay=False, help="Also write recording rules for Prometheus here.")] = None


HtmlOption = Annotated[Path | None, Option(dir_okay=False, help="Also write an HTML page to this file.")]


@dataclass(frozen=True, kw_only=True)
class ReportOptions(ScoreSource):
    """Compare live scores with the bundle's curve, and with a baseline."""

    against: Annotated[Path | None, file_option("What `baseline` wrote.", "--baseline")] = None
    html: HtmlOption = None
    check: Annotated[bool, Option("--check", help="Exit with status 3 if anything drifted.")] = False


@dataclass(frozen=True, kw_only=True)
class ShadowOptions(MetricsSource):
    """Report what a version that shadows the served one would change; docs/rollouts.md."""

    html: HtmlOption = None


@app.callback()
def drift() -> None:
    """Report whether a bot's scores have drifted; docs/compare.md says how, and how surely."""


def baseline(options: BaselineOptions) -> None:
    """Writes the baseline, and says of how much it is."""
    from turnscore_assessment.drift.report import make_rules
    from turnscore_assessment.drift.sources import write_baseline

    found = _gather(options)
    write_baseline(options.output, found)
    if options.rules is not None:
        options.rules.write_text(make_rules(found))
    for each in found:
        typer.echo(f"{each.model}: {each.dialogues:,.0f} dialogues, {each.turns:,.0f} turns")


def report(options: ReportOptions) -> None:
    """Prints the comparisons; exits with status 3 where that was asked for."""
    from turnscore_assessment.drift.report import build_page, find_drift
    from turnscore_assessment.drift.sources import read_baseline

    live = _gather(options)
    findings = find_drift(live, () if options.against is None else read_baseline(options.against))
    page = build_page(findings, _command_line())
    _write_html(options.html, page)
    print_page(replace(page, sections=page.sections[:1]))
    if options.check and any(each.has_drifted for each in findings):
        raise typer.Exit(3)


def shadow(options: ShadowOptions) -> None:
    """Prints each shadow's differences."""
    from turnscore_assessment.drift.report import CORRELATION, TOTALS, build_shadow_page, collect_shadows
    from turnscore_assessment.drift.sources import query_least, query_prometheus, read_service

    if bool(options.metrics) == bool(options.prometheus):
        raise typer.BadParameter("give one of --metrics and --prometheus")
    _check_selector(options)
    if options.prometheus:
        samples = query_prometheus(options.prometheus, options.window, options.selector, totals=TOTALS)
        samples += query_least(options.prometheus, CORRELATION, options.window, options.selector)
    else:
        samples = [each for url in options.metrics or () for each in read_service(url)]
    found = collect_shadows(samples)
    if not found:
        raise AssessmentError("no turn was compared there: TURNSCORE_SHADOW names no version, or nothing was said")
    page = build_shadow_page(found, _command_line())
    _write_html(options.html, page)
    print_page(page)


app.command("baseline")(command_of(BaselineOptions, baseline, OSError))
app.command("report")(command_of(ReportOptions, report, OSError))
app.command("shadow")(command_of(ShadowOptions, shadow, OSError))


def _command_line() -> str:
    return shlex.join(["turnscore", *sys.argv[1:]])


def _write_html(path: Path | None, page: Page) -> None:
    if path is not None:
        write_text(path, to_html(page))


def _check_selector(source: MetricsSource) -> None:
    if source.selector and not source.prometheus:
        raise typer.BadParameter("goes with --prometheus; other sources have no such labels", param_hint="--selector")


def _gather(source: ScoreSource) -> "list[LiveValues]":
    """The values from the one source that was given."""
    from turnscore_assessment.drift.sources import CollectedValues, collect, query_prometheus, read_file, read_service

    if sum(map(bool, (source.metrics, source.prometheus, source.scores))) != 1:
        raise typer.BadParameter("give one of --metrics, --prometheus and --scores")
    _check_selector(source)
    if source.scores:
        if source.tenant is not None:
            raise typer.BadParameter("a file of scores names no tenants", param_hint="--tenant")
        found = CollectedValues(each for path in source.scores for each in read_file(path)).all()
    elif source.prometheus:
        found = collect(query_prometheus(source.prometheus, source.window, source.selector, source.tenant))
    else:
        found = collect([each for url in source.metrics or () for each in read_service(url)], source.tenant)
    if not found:
        raise AssessmentError("no turns that were said are counted there")
    return found
