"""How the command reports errors: one line on stderr. Errors that are not ours keep their traceback."""

from collections.abc import Iterator
from contextlib import contextmanager

import typer
from turnscore_core.engine import OptionsError
from turnscore_core.inference.onnx_backend import DeviceError
from turnscore_models import BundleError

from turnscore_corpus.errors import BadColumnsError, CorpusError, StoppedError

STOPPED = 3
"""The exit code of a run that the same command resumes."""
_USAGE = 2


@contextmanager
def reported_errors() -> Iterator[None]:
    """Ends the command with a message and an exit code for an error that a user can act on."""
    try:
        yield
    except StoppedError as error:
        typer.echo(f"turnscore: stopped: {error}; repeat the command to resume", err=True)
        raise typer.Exit(STOPPED) from None
    except (BadColumnsError, OptionsError) as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(_USAGE) from None
    except (CorpusError, BundleError, DeviceError, OSError) as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from None
