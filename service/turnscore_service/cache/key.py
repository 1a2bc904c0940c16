"""Keys: one text for everything that can change a turn's score. Pure; holds no dialogue text.

    turnscore:1:<namespace>:<bundle>:<version>:<identity>:<input>
              │                              │          └ hash of what the scorer reads of the turn
              │                              └ hash of kind, digest, graph and code: two bundles of one version differ
              └ the format of entries: another one is never read

Namespace, bundle and version are readable, so that a scorer's entries can be found by version and removed.
"""

from base64 import urlsafe_b64encode
from collections.abc import Iterable
from hashlib import blake2b

from turnscore_service.scorers.fields import Field, Fields, pack_fields
from turnscore_service.scorers.loading import LoadedScorer

ENTRY_FORMAT = 1
"""Raised whenever entries are laid out in another way, or scores mean something else."""

_PREFIX = f"turnscore:{ENTRY_FORMAT}"
PROBE_KEY = f"{_PREFIX}-probe"
"""Where it is tried whether a Redis can be read and written."""
_IDENTITY_BYTES = 12
_INPUT_BYTES = 18
"""Two of 2^72 different inputs would be expected to share a hash. Chosen."""


class KeyMaker:
    """Makes the keys of one loaded scorer's turns. Resolves everything that does not depend on the turn once."""

    def __init__(self, loaded: LoadedScorer, secret: bytes = b"") -> None:
        """With `secret`, at most 64 bytes, only who has it can tell whether a text they guess was scored."""
        self._secret = secret
        self._identity = _text(_hash(_identity_fields(loaded), _IDENTITY_BYTES, b""))
        self._model = loaded.bundle.manifest.reference

    def key(self, namespace: str, inputs: Fields) -> str:
        """The key of a turn of which the scorer reads `inputs`."""
        prefix = f"{_PREFIX}:{namespace}:{self._model}:{self._identity}"
        return f"{prefix}:{_text(_hash((prefix, *inputs), _INPUT_BYTES, self._secret))}"


def _identity_fields(loaded: LoadedScorer) -> Fields:
    return loaded.name, loaded.bundle.digest, loaded.variant, loaded.code_version


def _hash(fields: Iterable[Field], size: int, secret: bytes) -> bytes:
    return blake2b(pack_fields(fields), digest_size=size, key=secret).digest()


def _text(digest: bytes) -> str:
    return urlsafe_b64encode(digest).decode()
