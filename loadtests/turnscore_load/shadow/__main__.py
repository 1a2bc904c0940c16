"""`make shadow`: what callers notice of a shadow, measured beside a service without one."""

import sys
from pathlib import Path
from typing import Annotated

import typer
import uvloop

from turnscore_load.conclusion import conclude
from turnscore_load.shadow.report import checks, report
from turnscore_load.shadow.run import ShadowSettings, run_shadow, two_services
from turnscore_load.target import NoServiceError


def main(
    rounds: Annotated[int, typer.Option(min=2, max=50, help="Rounds of each service, in turns.")] = 6,
    seconds: Annotated[float, typer.Option(min=1, max=120, help="Seconds of a round.")] = 10.0,
    share: Annotated[float, typer.Option(min=0.01, max=1, help="Share of turns that are shadowed.")] = 0.1,
    overload_seconds: Annotated[float, typer.Option(min=20, max=120, help="Seconds of the overload.")] = 30.0,
    bundle: Annotated[Path, typer.Option(exists=True, file_okay=False, help="The bundle that is served.")] = Path(
        "model_store/starter/engagement"
    ),
    bentoml: Annotated[Path, typer.Option(help="The bentoml command that starts the services.")] = Path(
        ".venv/bin/bentoml"
    ),
    reports: Annotated[Path, typer.Option(help="Folder of the report.")] = Path("build/load"),
) -> None:
    """Loads a service with a shadow and one without in turns; the exit code says whether callers notice nothing."""
    settings = ShadowSettings(rounds=rounds, seconds=seconds, share=share, overload_seconds=overload_seconds)
    folder = reports / "shadow"
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with two_services(bundle, bentoml, folder, share) as (plain, shadowed):
            run = uvloop.run(run_shadow(plain, shadowed, settings, typer.echo))
    except NoServiceError as error:
        sys.exit(f"shadow: {error}")
    verdicts = checks(run)
    conclude(reports / "shadow.md", report(run, verdicts), verdicts)


if __name__ == "__main__":
    typer.run(main)
