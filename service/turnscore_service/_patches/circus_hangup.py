"""Replaces what BentoML's supervisor (circus) does on SIGHUP: it would restart all workers at once."""

from collections.abc import Callable


def handle_hangup(handle: Callable[[], object]) -> None:
    """From here on a supervisor in this process calls `handle` on SIGHUP."""
    from circus.sighandler import SysHandler

    SysHandler.handle_hup = lambda _: handle()
