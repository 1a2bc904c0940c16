"""Bundle errors: every reason for which a bundle is refused, each a sentence that says which and why.

BundleError
├── BundleNotFoundError      no bundle of that name or version
├── InvalidManifestError     manifest.json is missing, unreadable, or of another format
├── UnknownKindError         no installed scorer serves this kind of bundle
├── MissingBundleFileError   a file that the manifest lists is not there
├── CorruptBundleError       a file's checksum is not the manifest's
├── MismatchedGraphError     a graph's inputs, outputs or scores are not what the manifest says
├── BundleExistsError        the store already holds that version, with other content
└── FetchError               an archive could not be had, or is not the one that was named
"""


class BundleError(Exception):
    """A bundle cannot be used; the message names the bundle or file and the reason."""


class BundleNotFoundError(BundleError):
    """No bundle of that name or version is known."""


class InvalidManifestError(BundleError):
    """`manifest.json` is missing, unreadable, or of a format this version does not know."""


class UnknownKindError(BundleError):
    """No installed scorer serves bundles of this kind."""


class MissingBundleFileError(BundleError):
    """A file that the manifest lists is not in the bundle."""


class CorruptBundleError(BundleError):
    """A file's SHA-256 differs from the manifest's."""


class MismatchedGraphError(BundleError):
    """A graph's inputs, outputs or scores are not those the manifest promises."""


class BundleExistsError(BundleError):
    """The store already holds this name and version with other content."""


class FetchError(BundleError):
    """An archive of bundles could not be had, or is not the one that was named."""
