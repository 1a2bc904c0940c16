"""The errors of training and export. Each message names the file, row or graph."""


class ExporterError(Exception):
    """Anything that stops training or export and that the user can act on."""


class PairCountError(ExporterError):
    """The file's pair counts are not the published ones."""


class EncoderError(ExporterError):
    """An encoder could not be loaded, or is not a BERT."""


class CheckpointError(ExporterError):
    """A checkpoint is missing, broken or belongs to another training run."""


class GraphExportError(ExporterError):
    """A graph could not be written or lacks an input or output it must have."""


class ParityError(ExporterError):
    """A graph disagrees with the torch model it came from."""
