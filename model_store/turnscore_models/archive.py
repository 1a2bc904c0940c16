"""Archives: bundles fetched as one .tar.gz over HTTP, from a bucket that speaks S3's protocol too. Unpacks no other.

The SHA-256 is known before anything is fetched, so that whoever can write to the bucket cannot change what is served.
"""

import gzip
import hashlib
import hmac
import os
import tarfile
import tempfile
import zlib
from collections.abc import Mapping
from datetime import UTC, datetime
from http.client import HTTPException
from pathlib import Path, PurePosixPath
from typing import IO, Any, BinaryIO
from urllib.error import URLError
from urllib.parse import quote, unquote, urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from turnscore_models.errors import FetchError
from turnscore_models.manifest import MAX_DEPTH, MAX_FILES

_CHUNK_BYTES = 1 << 20
_TIMEOUT_SECONDS = 60.0
"""Of one read; an archive may take as long as it comes. Chosen."""
_EMPTY_SHA256 = hashlib.sha256(b"").hexdigest()


def fetch_archive(url: str, sha256: str, folder: Path, environment: Mapping[str, str] = os.environ) -> None:
    """Unpacks the archive into the folder; changes nothing there where it cannot be had or its hash is another.

    Signed with AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN and AWS_REGION where they are set (AWS
    Signature Version 4). Raises FetchError.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise FetchError("the archive's URL must begin with http:// or https://")
    headers = sign(url, environment, datetime.now(UTC)) if environment.get("AWS_ACCESS_KEY_ID") else {}
    with tempfile.TemporaryFile(dir=folder) as file:
        digest = _download(Request(url, headers=headers), file)  # noqa: S310 http and https alone, as checked
        if digest != sha256.lower():
            raise FetchError(f"the archive's SHA-256 is {digest}, not {sha256}")
        file.seek(0)
        try:
            unpack(file, folder)
        except UNPACKING_ERRORS as error:
            raise FetchError(f"the archive cannot be unpacked: {error}") from error


_UNPACKED_ROOM = 64 * 1024**2
_MOST_UNPACKED = 20
"""An archive may grow to so many bytes plus so many times its own size. Weights hardly shrink, tokenizers to a fifth; a
bomb shrinks to a thousandth."""
UNPACKING_ERRORS = (tarfile.TarError, OSError, EOFError, zlib.error)
"""What `unpack` raises."""


def unpack(packed: IO[bytes], folder: Path) -> None:
    """Unpacks a gzipped tar of bundles into the folder, bounded in bytes, files and depth.

    Raises one of UNPACKING_ERRORS, also for paths and links that lead out of the folder.
    """
    packed.seek(0, os.SEEK_END)
    limit = _UNPACKED_ROOM + _MOST_UNPACKED * packed.tell()
    packed.seek(0)
    with gzip.open(packed) as content:
        stream: Any = _BoundedStream(content, limit)  # all that a tar read from front to end needs of a file
        with tarfile.open(fileobj=stream, mode="r|") as opened:
            for count, member in enumerate(opened, 1):
                if count > MAX_FILES or member.issparse():
                    raise OSError(f"it holds more than {MAX_FILES} files, or sparse ones")
                if len(PurePosixPath(member.name).parts) > MAX_DEPTH + 2:  # a bundle's own folder, and the file
                    raise OSError(f"it has more than {MAX_DEPTH} folders in each other")
                opened.extract(member, folder, filter="data")


class _BoundedStream:
    """What is read from `stream`. More than `limit` bytes are an OSError, before they are on disk or in memory."""

    def __init__(self, stream: gzip.GzipFile, limit: int) -> None:
        self._stream = stream
        self._left = limit

    def read(self, size: int, /) -> bytes:
        """At most `size` bytes, and never more than one above what is left."""
        data = self._stream.read(min(size, self._left + 1))
        self._left -= len(data)
        if self._left < 0:
            raise OSError("it unpacks to far more than a bundle of its size does")
        return data


class _NoRedirect(HTTPRedirectHandler):
    """Signatures and secrets in a URL go to nobody else."""

    def redirect_request(self, *_: object) -> None:
        return None


def _download(request: Request, file: BinaryIO) -> str:
    """The SHA-256 of what was written."""
    found = hashlib.sha256()
    try:
        with build_opener(_NoRedirect).open(request, timeout=_TIMEOUT_SECONDS) as answer:
            while chunk := answer.read(_CHUNK_BYTES):
                found.update(chunk)
                file.write(chunk)
    except (URLError, OSError, HTTPException) as error:
        raise FetchError(f"the archive cannot be fetched: {error}") from error
    return found.hexdigest()


def sign(url: str, environment: Mapping[str, str], now: datetime) -> dict[str, str]:
    """The headers of a signed GET (AWS Signature Version 4, in the Authorization header)."""
    parts = urlsplit(url)
    region, day, moment = environment.get("AWS_REGION", "us-east-1"), f"{now:%Y%m%d}", f"{now:%Y%m%dT%H%M%SZ}"
    headers = {"host": parts.netloc, "x-amz-content-sha256": _EMPTY_SHA256, "x-amz-date": moment}
    if token := environment.get("AWS_SESSION_TOKEN"):
        headers["x-amz-security-token"] = token
    names = ";".join(sorted(headers))
    lines = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers))
    path = quote(unquote(parts.path or "/"), safe="/-_.~")
    canonical = "\n".join(["GET", path, parts.query, lines, names, _EMPTY_SHA256])
    scope = f"{day}/{region}/s3/aws4_request"
    text = "\n".join(["AWS4-HMAC-SHA256", moment, scope, hashlib.sha256(canonical.encode()).hexdigest()])
    key = f"AWS4{environment.get('AWS_SECRET_ACCESS_KEY', '')}".encode()
    for word in (day, region, "s3", "aws4_request"):
        key = hmac.digest(key, word.encode(), "sha256")
    signature = hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
    credential = f"{environment['AWS_ACCESS_KEY_ID']}/{scope}"
    authorization = f"AWS4-HMAC-SHA256 Credential={credential}, SignedHeaders={names}, Signature={signature}"
    return {**headers, "authorization": authorization}
