"""Certificates for tests, made by make.sh; the keys are published here and protect nothing."""

from pathlib import Path

_FOLDER = Path(__file__).parent


def certificate(name):
    """The chain: `authority`, `server`, `renewed_server`, `caller`, `stranger_authority` or `stranger`."""
    return _FOLDER / f"{name}.pem"


def private_key(name):
    """The key of one that has one."""
    return _FOLDER / f"{name}.key"
