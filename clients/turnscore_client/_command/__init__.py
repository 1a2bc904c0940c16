"""The `turnscore` command: one program whose sub-commands the installed distributions register."""

import sys

_MISSING = (
    "turnscore: the command line needs the extra `cli` of turnscore-client "
    "(in a checkout: pip install './clients[cli]')"
)


def main() -> None:
    """Runs the command line; exit code 2 where typer is not installed."""
    try:
        from turnscore_client._command.registry import app
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("typer", "click"):
            raise
        sys.stderr.write(_MISSING + "\n")
        raise SystemExit(2) from None
    app()
