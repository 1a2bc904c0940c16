"""The model store: finds bundles by name and version, in BentoML's store, then among the starter bundles.

A bundle that cannot be read is refused when it is asked for, and stops no other. Without BentoML, which the extra
`store` installs, nothing is stored, and folders and starter bundles are found all the same.
"""

import gzip
import hashlib
import hmac
import os
import re
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from difflib import get_close_matches
from http.client import HTTPException
from pathlib import Path, PurePosixPath
from types import ModuleType
from typing import IO, Any, BinaryIO
from urllib.error import URLError
from urllib.parse import quote, unquote, urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from turnscore_models.bundle import Bundle, read_bundle, read_manifest, starter_bundles
from turnscore_models.manifest import (
    MANIFEST_FILE,
    MAX_DEPTH,
    MAX_FILES,
    BundleError,
    BundleExistsError,
    BundleNotFoundError,
    FetchError,
    InvalidManifestError,
    Manifest,
)

_CHUNK_BYTES = 1 << 20
_TIMEOUT_SECONDS = 60.0  # of one read; an archive may take as long as it comes; chosen
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
# An archive may grow to so many bytes plus so many times its own size. Weights hardly shrink, tokenizers to a fifth; a
# bomb shrinks to a thousandth.
_MOST_UNPACKED = 20
UNPACKING_ERRORS = (tarfile.TarError, OSError, EOFError, zlib.error)  # what `unpack` raises


def unpack(packed: IO[bytes], folder: Path) -> None:
    """Unpacks a gzipped tar of bundles into the folder, bounded in bytes, files and depth.

    Raises one of UNPACKING_ERRORS, also for paths and links that lead out of the folder.
    """
    packed.seek(0, os.SEEK_END)
    limit = _UNPACKED_ROOM + _MOST_UNPACKED * packed.tell()
    packed.seek(0)
    with gzip.open(packed) as content:
        stream: Any = _LimitedReader(content, limit)  # all that a tar read from front to end needs of a file
        with tarfile.open(fileobj=stream, mode="r|") as opened:
            for count, member in enumerate(opened, 1):
                if count > MAX_FILES or member.issparse():
                    raise OSError(f"it holds more than {MAX_FILES} files, or sparse ones")
                if len(PurePosixPath(member.name).parts) > MAX_DEPTH + 2:  # a bundle's own folder, and the file
                    raise OSError(f"it has more than {MAX_DEPTH} folders in each other")
                opened.extract(member, folder, filter="data")


class _LimitedReader:
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
    """Signatures and secrets in a URL go to no one else."""

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


LATEST = "latest"
_LABEL = "turnscore"  # marks our bundles among the models that others keep in the same store
# A reference that BentoML takes as it is; it changes others, such as those with capitals.
_PINNED = re.compile(r"[a-z][a-z0-9_-]{0,62}:[0-9]+\.[0-9]+\.[0-9]+")


@dataclass(frozen=True)
class KnownBundle:
    """A bundle that has a place; nothing in it was read yet."""

    name: str
    version: str
    folder: Path

    @property
    def reference(self) -> str:
        return f"{self.name}:{self.version}"

    def read(self) -> Bundle:
        """The bundle, checked. Raises what `read_bundle` raises, also if the manifest has another name."""
        bundle = read_bundle(self.folder, _stored_folders())
        if bundle.manifest.reference != self.reference:
            raise InvalidManifestError(f"{self.reference} calls itself {bundle.manifest.reference} (in {self.folder})")
        return bundle


def list_bundles(name: str | None = None) -> list[KnownBundle]:
    """All stored bundles, or those of a name, by name, then oldest version first. Nothing in them is read."""
    if (bentoml := _import_bentoml()) is None:
        return []
    try:
        models = bentoml.models.list(name)
    except bentoml.exceptions.NotFound:
        return []
    except bentoml.exceptions.BentoMLException as error:
        raise BundleError(f"the model store cannot be read: {error}") from error
    found = [_known(model) for model in models if _LABEL in model.info.labels]
    return sorted(found, key=lambda each: (each.name, version_order(each.version)))


def resolve(reference: str) -> Bundle:
    """The bundle a setting or a command names, checked; a folder if there is a `/` in it.

    `name:version` is the stored bundle, else the starter bundle of that version. `name` and `name:latest` are the
    highest stored version, else the starter bundle. Raises BundleNotFoundError, or what `read_bundle` raises: a bundle
    that is there and broken is refused, never replaced by another.
    """
    if "/" in reference:
        return read_bundle(_folder_of(reference), _stored_folders())
    return _find(reference).read()


def find_manifest(reference: str) -> Manifest:
    """The manifest of the bundle that `resolve` finds; nothing else of it is read, which takes milliseconds.

    Raises BundleNotFoundError, or InvalidManifestError.
    """
    return read_manifest(_folder_of(reference) if "/" in reference else _find(reference).folder)


def _find(reference: str) -> KnownBundle:
    name, _, version = reference.partition(":")
    if version in ("", LATEST):
        known = list_bundles(name)[-1:] if _PINNED.fullmatch(f"{name}:0.0.0") else []
    else:
        stored = _find_stored(reference)
        known = [] if stored is None else [stored]
    known += [each for each in _list_starters() if each.name == name and version in ("", LATEST, each.version)]
    if not known:
        stored_ones, starters = list_bundles(), _list_starters()
        words = [word for each in (*starters, *stored_ones) for word in (each.name, each.reference)]
        near = get_close_matches(reference, words, n=1)
        raise BundleNotFoundError(
            f"no bundle {reference}; stored: {_names(stored_ones)}"
            f"{'' if _import_bentoml() else ' (turnscore-core[store] is not installed)'}; starter bundles: "
            f"{_names(starters)}{f'; did you mean {near[0]}?' if near else ''}"
        )
    return known[0]


def import_bundle(source: Path) -> Bundle:
    """Puts the bundle in `source`, a folder or a `.tar.gz` made by `export_bundle`, into the store, checked.

    Importing the same content again changes nothing; a stored version that is broken is replaced. Raises
    BundleExistsError where that version has other content, or what `read_bundle` raises; nothing then stays behind.
    """
    with tempfile.TemporaryDirectory(prefix="turnscore-import-") as scratch:
        folder = source if source.is_dir() else _unpack(source, Path(scratch))
        return _store(read_bundle(folder, _stored_folders()))


def export_bundle(bundle: Bundle, target: Path) -> Path:
    """Writes the bundle's own files, and nothing else, as `target`, a gzipped tar. Never overwrites."""
    with tarfile.open(target, "x:gz") as archive:
        for name in [MANIFEST_FILE, *sorted(bundle.own_files)]:
            archive.add(bundle.folder / name, arcname=name)
    return target


def version_order(version: str) -> tuple[int, ...]:
    """Sorts versions as numbers: 1.10.0 comes after 1.9.0; what is no version comes before all."""
    return tuple(int(part) for part in version.split(".")) if re.fullmatch(r"[0-9]+(\.[0-9]+)*", version) else ()


def _store(bundle: Bundle) -> Bundle:
    if (bentoml := _import_bentoml()) is None:
        raise BundleError("storing bundles takes BentoML: install turnscore-core[store]")
    manifest = bundle.manifest
    stored = _find_stored(manifest.reference)
    if stored is not None and (whole := _read_whole(stored)) is not None:
        if whole.manifest != manifest:
            raise BundleExistsError(
                f"the model store already holds another {manifest.reference}; give it a new version"
            )
        return whole
    labels = {_LABEL: "bundle", "kind": manifest.kind}
    try:
        if stored is not None:
            bentoml.models.delete(manifest.reference)
        with bentoml.models.create(manifest.reference, labels=labels) as model:
            for name in [MANIFEST_FILE, *bundle.own_files]:
                target = Path(model.path) / name
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(bundle.folder / name, target)
            read_bundle(Path(model.path), _stored_folders())  # what is refused here was never stored
    except OSError as error:
        reason = error.strerror or error
        raise BundleError(f"{manifest.reference} cannot be put into the model store: {reason}") from error
    except bentoml.exceptions.BentoMLException as error:
        raise BundleExistsError(f"the model store refuses {manifest.reference}: {error}") from error
    return _known(bentoml.models.get(manifest.reference)).read()


def _read_whole(stored: KnownBundle) -> Bundle | None:
    """The stored bundle; None where it is broken, and so holds the place of nothing that can be used."""
    try:
        return stored.read()
    except BundleError:
        return None


def _find_stored(reference: str) -> KnownBundle | None:
    """The stored bundle `name:version`; no other is touched."""
    if not _PINNED.fullmatch(reference) or (bentoml := _import_bentoml()) is None:
        return None
    try:
        model = bentoml.models.get(reference)
    except bentoml.exceptions.NotFound:
        return None
    except bentoml.exceptions.BentoMLException as error:
        raise InvalidManifestError(f"the model store cannot read {reference}: {error}") from error
    return _known(model) if _LABEL in model.info.labels else None


def _import_bentoml() -> ModuleType | None:
    """Imported when it is needed, as that takes a second; None where it is not installed. Sends no usage reports."""
    os.environ.setdefault("BENTOML_DO_NOT_TRACK", "True")
    try:
        import bentoml
        import bentoml.exceptions
    except ModuleNotFoundError:
        return None
    return bentoml


def _known(model: Any) -> KnownBundle:
    return KnownBundle(model.tag.name, model.tag.version or "", Path(model.path))


def _stored_folders() -> Iterator[Path]:
    """Listed when they are looked through: that takes a second."""
    yield from (each.folder for each in list_bundles())


def _list_starters() -> list[KnownBundle]:
    known = []
    for folder in starter_bundles():
        try:
            manifest: Manifest = read_manifest(folder)
        except InvalidManifestError:
            continue  # it has no name to be found by; serving without settings still refuses it
        known.append(KnownBundle(manifest.name, manifest.version, folder))
    return known


def _names(known: list[KnownBundle]) -> str:
    return ", ".join(each.reference for each in known) or "none"


def _folder_of(reference: str) -> Path:
    try:
        folder = Path(reference).expanduser()
    except RuntimeError as error:  # `~name` of nobody
        raise BundleNotFoundError(f"there is no bundle folder {reference}: {error}") from None
    if not folder.is_dir():
        raise BundleNotFoundError(f"there is no bundle folder {reference}")
    return folder


def _unpack(archive: Path, scratch: Path) -> Path:
    if not archive.exists():
        raise BundleNotFoundError(f"{archive} does not exist")
    try:
        with archive.open("rb") as packed:
            unpack(packed, scratch)
    except UNPACKING_ERRORS as error:
        raise InvalidManifestError(f"{archive} is not a bundle archive: {error}") from error
    return scratch
