"""A worker's link: a code that may be seen and a secret that may not, of which only the hash is kept.

The link is `https://host/#CODE.SECRET`: browsers send nothing behind `#`, so the secret is in no log and no Referer.
"""

import hashlib
import hmac
import secrets
from dataclasses import dataclass

SECRET_BYTES = 32
"""256 bits: guesses need no limit."""
LONGEST_LINK = 200
"""Most characters of CODE.SECRET. Chosen: four times what is made."""
_LETTERS = "abcdefghjkmnpqrstuvwxyz23456789"
"""Letters of a code, without those that are confused when read aloud or written by hand."""
_NOBODY = hashlib.sha256(b"").hexdigest()


@dataclass(frozen=True)
class Link:
    """A worker's code and secret."""

    code: str
    """The worker's name for those who run the study alone; it also shows that the worker has finished."""
    secret: str

    def __str__(self) -> str:
        return f"{self.code}.{self.secret}"


def make_link() -> Link:
    """A new random link."""
    return Link(make_word(10), secrets.token_urlsafe(SECRET_BYTES))


def make_word(letters: int) -> str:
    """A random word that can be read aloud."""
    return "".join(secrets.choice(_LETTERS) for _ in range(letters))


def parse_link(text: str) -> Link | None:
    """The link in a request; None where its form is wrong."""
    code, dot, secret = text.partition(".")
    return Link(code, secret) if len(text) <= LONGEST_LINK and text.isascii() and code and dot and secret else None


def hash_secret(secret: str) -> str:
    """The stored hash. A plain one: the secret is random and long, so guessing is hopeless."""
    return hashlib.sha256(secret.encode()).hexdigest()


def is_right_secret(secret: str, stored_hash: str | None) -> bool:
    """Whether the hash is the secret's, compared in constant time; also where no worker has that code (None)."""
    is_same = hmac.compare_digest(hash_secret(secret), stored_hash or _NOBODY)
    return is_same and stored_hash is not None
