"""Keys: one text for everything that can change a turn's score. Pure; holds no dialogue text.

    turnscore:3:<namespace>:<bundle>:<version>:<identity>:<input>
              │                              │          └ hash of what the scorer reads of the turn
              │                              └ hash of kind, digest, graph, code, mark: bundles of one version differ
              └ the format of entries: another one is never read

Namespace, bundle and version are readable, so that a scorer's entries can be found by version and removed. A mark is
left where that was done: with another mark all keys are others, so that nothing from before is found again.
"""

from base64 import urlsafe_b64encode
from hashlib import blake2b

from turnscore_core.scorers.fields import Field, Fields, pack_fields
from turnscore_core.scorers.loaded_scorer import LoadedScorer

ENTRY_FORMAT = 3
"""Raised whenever entries are laid out in another way, or scores mean something else."""

_PREFIX = f"turnscore:{ENTRY_FORMAT}"
PROBE_KEY = f"{_PREFIX}-probe"
"""Where it is tried whether a Redis can be read and written; no `key_pattern` matches it."""
_IDENTITY_BYTES = 12
_INPUT_BYTES = 18
"""Two of 2^72 different inputs would be expected to share a hash. Chosen."""
_TEXT_BYTES = 24
"""Of a text's hash within an input's: longer than that, so that it adds nothing to what may be shared. Chosen."""


class KeyMaker:
    """Makes the keys of one loaded scorer's turns. Resolves everything that does not depend on the turn once."""

    def __init__(self, loaded: LoadedScorer, secret: bytes = b"") -> None:
        """With `secret`, at most 64 bytes, only its owner can test whether a guessed text was scored."""
        self._secret = secret
        self._fields = loaded.kind, loaded.bundle.digest, loaded.variant, loaded.code_version
        self._model = loaded.bundle.manifest.reference
        self._mark = b""
        self._identity = self._identify()

    def take_mark(self, mark: bytes) -> bool:
        """Makes the keys that belong to this mark; whether it is another than before."""
        if mark == self._mark:
            return False
        self._mark = mark
        self._identity = self._identify()
        return True

    def key(self, namespace: str, inputs: Fields, hashes: "TextHashes | None" = None) -> str:
        """The key of a turn of which the scorer reads `inputs`; `hashes` are those of its request."""
        prefix = f"{_PREFIX}:{namespace}:{self._model}:{self._identity}"
        hashed = b"".join(map((hashes or TextHashes()).pack, (prefix, *inputs)))
        return f"{prefix}:{_text(_hash(hashed, _INPUT_BYTES, self._secret))}"

    def _identify(self) -> str:
        return _text(_hash(pack_fields((*self._fields, self._mark.hex())), _IDENTITY_BYTES))


class TextHashes:
    """The hashes of one request's texts. Each text is hashed once, however many of its turns and scorers read it."""

    def __init__(self) -> None:
        self._known: dict[str, bytes] = {}

    def pack(self, field: Field) -> bytes:
        """As `pack_fields`, with the hash of each text in its place."""
        if isinstance(field, str):
            return b"s" + self._hash_of(field)
        if isinstance(field, tuple):
            return b"t%d:%b" % (len(field), b"".join(map(self._hash_of, field)))
        return pack_fields((field,))

    def _hash_of(self, text: str) -> bytes:
        known = self._known.get(text)
        if known is None:
            known = self._known[text] = _hash(text.encode(), _TEXT_BYTES)
        return known


def key_pattern(model: str) -> str:
    """A glob that matches the keys of the model `name:version` in every namespace, and no others."""
    return f"{_PREFIX}:*:{model}:*"


def mark_key(model: str) -> str:
    """Where the mark of the model `name:version` stands; no `key_pattern` matches it."""
    return f"{_PREFIX}-cleared:{model}"


def _hash(content: bytes, size: int, secret: bytes = b"") -> bytes:
    return blake2b(content, digest_size=size, key=secret).digest()


def _text(digest: bytes) -> str:
    return urlsafe_b64encode(digest).decode()
