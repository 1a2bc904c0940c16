"""A bundle on disk: reads it, checks every file against the manifest, writes it. Refuses what it cannot trust."""

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.metadata import entry_points
from itertools import chain
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from turnscore_models.manifest import (
    CRITERION,
    MANIFEST_FILE,
    MAX_DEPTH,
    MAX_FILES,
    BundleError,
    Calibration,
    CorruptBundleError,
    InvalidManifestError,
    Manifest,
    MismatchedGraphError,
    MissingBundleFileError,
    SelfTest,
    UnknownKindError,
)

SCORER_ENTRY_POINTS = "turnscore.scorers"

# Files that no manifest lists: the manifest itself, and what BentoML's store writes next to it.
_UNCHECKED = frozenset({MANIFEST_FILE, "model.yaml"})
# What the manifest says that can change a score or its percentile; everything else in it is prose.
_DECIDING = {"kind", "graphs", "heads", "tokenizer", "calibration", "token_limit", "options"}
# Of a manifest, calibration, self-test or heads file. The largest that ships has 13 kB.
MAX_DOCUMENT_BYTES = 1024 * 1024
_MOST_NAMED = 5  # chosen: enough to see what kind of files they are

_Document = TypeVar("_Document", bound=BaseModel)


@dataclass(frozen=True)
class Bundle:
    """A bundle whose files were all found to be what its manifest says."""

    folder: Path
    manifest: Manifest
    shared_folder: Path | None = None  # That of the bundle which has the shared files.

    def path_of(self, file: str) -> Path:
        """The place of one of the bundle's files. Raises InvalidManifestError for one without a checksum."""
        if file not in self.manifest.files:
            raise InvalidManifestError(
                f"bundle {self.manifest.reference} names the file {file}, for which its manifest gives no SHA-256"
            )
        if self.shared_folder is not None and self.manifest.shared is not None and file in self.manifest.shared.files:
            return self.shared_folder / file
        return self.folder / file

    @property
    def lenders(self) -> list[Path]:
        """Where a copy of it finds what it shares, wherever that lies."""
        return [] if self.shared_folder is None else [self.shared_folder]

    @property
    def own_files(self) -> list[str]:
        """The files in its own folder."""
        shared = () if self.manifest.shared is None else self.manifest.shared.files
        return [name for name in self.manifest.files if name not in shared]

    @property
    def digest(self) -> str:
        """SHA-256 over name and content of every file that can change a score: all but the manifest's prose."""
        total = hashlib.sha256()
        for name, checksum in sorted(self.manifest.files.items()):
            total.update(f"{len(name)}:{name}:{checksum}\n".encode())
        total.update(self.manifest.model_dump_json(include=_DECIDING).encode())
        return total.hexdigest()

    def read_options(self, kind: type[_Document]) -> _Document:
        """The manifest's options. Raises RuntimeError, which names the first that is wrong."""
        try:
            return kind.model_validate(self.manifest.options)
        except ValidationError as error:
            wrong = error.errors()[0]
            where = ".".join(map(str, wrong["loc"]))
            raise RuntimeError(f"the manifest's options are wrong: {where}: {wrong['msg']}") from None

    def calibration(self) -> Calibration:
        """The percentiles of the reference turns. Raises InvalidManifestError where they are broken."""
        return read_document(Calibration, self.path_of(self.manifest.calibration))

    def self_test(self) -> SelfTest:
        """The turns to check a loaded bundle on. Raises InvalidManifestError where they are broken."""
        return read_document(SelfTest, self.path_of(self.manifest.self_test))


def read_bundle(folder: Path, others: Iterable[Path] = ()) -> Bundle:
    """Reads and checks the bundle in `folder`; every file in it must be one that the manifest lists.

    The files that it shares are looked for next to it, as in a store, then in starter bundles, then in the `others`.
    Raises InvalidManifestError, UnknownKindError, MissingBundleFileError or CorruptBundleError, or for heads of another
    encoder MismatchedGraphError; each names the file and says what is wrong with it.
    """
    manifest = read_manifest(folder)
    kinds = known_kinds()
    if manifest.kind not in kinds:
        raise UnknownKindError(
            f"bundle {manifest.reference} is of kind {manifest.kind!r}; "
            f"this installation has scorers for: {', '.join(kinds) or 'none'}"
        )
    if manifest.kind == CRITERION and manifest.name in kinds:
        raise InvalidManifestError(f"bundle {manifest.reference}: a criterion cannot have the name of another scorer")
    # A graph may load weights from any file next to it, so that one without a checksum could change a score.
    unlisted = sorted((manifest.named_files | _names_in(folder)) - manifest.files.keys())
    if unlisted:
        more = f" and {len(unlisted) - _MOST_NAMED} more" if len(unlisted) > _MOST_NAMED else ""
        raise InvalidManifestError(
            f"bundle {manifest.reference} gives no SHA-256 for {', '.join(unlisted[:_MOST_NAMED])}{more} "
            f"(in {folder}); remove what is not part of it, or write the bundle again"
        )
    if reserved := sorted(_UNCHECKED & manifest.files.keys()):
        raise InvalidManifestError(
            f"bundle {manifest.reference} lists {', '.join(reserved)}: the model store or the manifest has that name"
        )
    bundle = Bundle(folder, manifest, _find_shared(folder, manifest, others))
    for name, checksum in manifest.files.items():
        path = bundle.path_of(name)
        if not path.is_file():
            raise MissingBundleFileError(f"bundle {manifest.reference} lacks the file {name} (in {path.parent})")
        found = sha256_of(path)
        if found != checksum:
            raise CorruptBundleError(
                f"bundle {manifest.reference}: {name} has SHA-256 {found[:12]}..., "
                f"the manifest says {checksum[:12]}...; {path} is damaged or was changed"
            )
    _refuse_foreign_heads(manifest)
    return bundle


def read_manifest(folder: Path) -> Manifest:
    """Reads `manifest.json` only. Raises InvalidManifestError where it is missing or broken."""
    return read_document(Manifest, folder / MANIFEST_FILE)


def write_bundle(folder: Path, manifest: Manifest, others: Iterable[Path] = ()) -> Bundle:
    """Writes the manifest next to the files that are already in `folder`; their checksums are taken now.

    `manifest.files` is replaced by every file found below the folder, and by those that it shares. The bundle is then
    read back and checked.
    """
    files = {name: sha256_of(folder / name) for name in sorted(_names_in(folder)) if (folder / name).is_file()}
    if manifest.shared is not None:
        files |= {name: manifest.files[name] for name in manifest.shared.files}
    complete = manifest.model_copy(update={"files": files})
    (folder / MANIFEST_FILE).write_text(complete.model_dump_json(indent=2) + "\n", encoding="utf-8")
    return read_bundle(folder, others)


def copy_bundle(bundle: Bundle, target: Path) -> Bundle:
    """Copies a bundle into the empty folder `target`."""
    for name in bundle.own_files:
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(bundle.path_of(name), target / name)
    return write_bundle(target, bundle.manifest, bundle.lenders)


def known_kinds() -> list[str]:
    """The kinds of bundle that the installed scorers can read."""
    return sorted({entry.name for entry in entry_points(group=SCORER_ENTRY_POINTS)})


def sha256_of(path: Path) -> str:
    """The file's SHA-256 in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def encoder_digest(*digests: str) -> str:
    """The digest that heads are bound to, of the SHA-256 of the encoder's graph, or of both (HeadsSpec)."""
    return digests[0] if len(digests) == 1 else hashlib.sha256("".join(digests).encode()).hexdigest()


def _find_shared(folder: Path, manifest: Manifest, others: Iterable[Path]) -> Path | None:
    """The folder of the bundle that has the shared files; None where all are in this one's."""
    if (shared := manifest.shared) is None:
        return None
    wanted = {name: manifest.files.get(name) for name in shared.files}
    store = folder.resolve().parent
    versions = sorted((store.parent / shared.bundle).glob(f"*/{MANIFEST_FILE}"), reverse=True)
    places = [store / shared.bundle, *(each.parent for each in versions), *starter_bundles()]
    for place in chain(places, others):
        try:
            found = read_manifest(place)
        except InvalidManifestError:
            continue
        if found.shared is None and wanted.items() <= found.files.items() and _holds(place, wanted):
            return place
    raise MissingBundleFileError(
        f"bundle {manifest.reference} shares {', '.join(wanted)} with the bundle {shared.bundle}, of which no version "
        f"with these files lies next to it (in {store}), in the model store or among the starter bundles; import one"
    )


def _holds(folder: Path, wanted: Mapping[str, str | None]) -> bool:
    return all((folder / name).is_file() and sha256_of(folder / name) == digest for name, digest in wanted.items())


def _refuse_foreign_heads(manifest: Manifest) -> None:
    """Heads of another encoder would give numbers that mean nothing, and nothing else would notice."""
    for name, heads in manifest.heads.items():
        where = f"bundle {manifest.reference}: the heads {name!r} ({heads.file})"
        if (found := manifest.files[heads.file]) != heads.sha256:
            raise CorruptBundleError(f"{where} have SHA-256 {found[:12]}..., their entry says {heads.sha256[:12]}...")
        for graph in manifest.graphs.values():
            if (encoder := encoder_digest(*map(manifest.files.__getitem__, graph.files))) not in heads.encoders:
                bound = ", ".join(f"{each[:12]}..." for each in heads.encoders)
                raise MismatchedGraphError(
                    f"{where} are bound to the encoder with SHA-256 {bound or 'none'}; "
                    f"{' with '.join(graph.files)} has SHA-256 {encoder[:12]}..."
                )


def _names_in(folder: Path) -> set[str]:
    """Everything below the folder that needs a checksum; a link to a folder is one name, not what is behind it.

    Raises InvalidManifestError for more files or deeper folders than a bundle has.
    """
    found: set[str] = set()
    left = [(folder, 0)]
    while left:
        place, depth = left.pop()
        with os.scandir(place) as entries:
            for entry in entries:
                if not entry.is_dir(follow_symlinks=False):
                    found.add(Path(entry.path).relative_to(folder).as_posix())
                elif depth == MAX_DEPTH:
                    raise InvalidManifestError(f"{folder} has more than {MAX_DEPTH} folders in each other")
                else:
                    left.append((Path(entry.path), depth + 1))
                if len(found) + len(left) > MAX_FILES:
                    raise InvalidManifestError(f"{folder} has more than {MAX_FILES} files")
    return found - _UNCHECKED


@contextmanager
def private_copy(bundle: Bundle) -> Iterator[Bundle]:
    """The bundle in a folder that this process alone writes, for as long as it is being loaded.

    Each file is hashed as it is copied, so that what is loaded from there is what was hashed, whoever writes to the
    bundle's own folder, or turns a link to it, meanwhile. Raises CorruptBundleError where a file is not what the
    manifest says, MissingBundleFileError where one cannot be read.
    """
    with tempfile.TemporaryDirectory(prefix="turnscore-bundle-") as scratch:
        folder = Path(scratch)
        for name, checksum in bundle.manifest.files.items():
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                found = _copy_hashed(bundle.path_of(name), target)
            except FileNotFoundError:
                raise MissingBundleFileError(
                    f"bundle {bundle.manifest.reference} lacks the file {name} (in {bundle.path_of(name).parent})"
                ) from None
            except OSError as error:
                raise BundleError(f"bundle {bundle.manifest.reference}: {name}: {error.strerror or error}") from error
            if found != checksum:
                raise CorruptBundleError(
                    f"bundle {bundle.manifest.reference}: {bundle.path_of(name)} was changed while the bundle was "
                    "being loaded; try again when nothing writes it"
                )
        yield replace(bundle, folder=folder, shared_folder=None)


def _copy_hashed(source: Path, target: Path) -> str:
    total = hashlib.sha256()
    with source.open("rb") as read, target.open("wb") as written:
        while piece := read.read(1 << 20):
            total.update(piece)
            written.write(piece)
    return total.hexdigest()


def read_document(kind: type[_Document], path: Path) -> _Document:
    """A JSON document of a bundle. Raises InvalidManifestError for one that is missing, broken or too large."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_DOCUMENT_BYTES + 1)
        if len(content) > MAX_DOCUMENT_BYTES:
            raise InvalidManifestError(f"{path} has more than {MAX_DOCUMENT_BYTES} bytes")
        return kind.model_validate_json(content)
    except FileNotFoundError:
        raise InvalidManifestError(f"there is no {path.name} in {path.parent}") from None
    except OSError as error:
        raise InvalidManifestError(f"{path} cannot be read: {error.strerror}") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        raise InvalidManifestError(f"{path}: {where}: {first['msg']}") from None


_PACKAGE = Path(__file__).parent
# In a wheel they lie inside the package, in a checkout next to it.
_PLACES = (_PACKAGE / "starter", _PACKAGE.parent / "starter")


def starter_bundles() -> list[Path]:
    """The folders of the bundles that ship with turnscore, sorted by name."""
    return sorted(manifest.parent for place in _PLACES for manifest in place.glob(f"*/{MANIFEST_FILE}"))
