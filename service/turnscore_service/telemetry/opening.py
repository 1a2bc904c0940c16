"""Opening: the recorder that the settings describe, or none. Imports opentelemetry only where a collector is named."""

from importlib.util import find_spec

from turnscore_service.settings.telemetry import TelemetrySettings
from turnscore_service.telemetry.recorder import TelemetryRecorder

_PACKAGES = {"http": "opentelemetry.exporter.otlp.proto.http", "grpc": "opentelemetry.exporter.otlp.proto.grpc"}


class MissingExporterError(Exception):
    """The package that speaks the collector's protocol is not installed; the message names it."""


def require_exporter(settings: TelemetrySettings) -> None:
    """Raises MissingExporterError if telemetry is wanted and cannot be sent."""
    if settings.endpoint and not _is_installed(_PACKAGES[settings.protocol]):
        package = f"opentelemetry-exporter-otlp-proto-{settings.protocol}"
        raise MissingExporterError(f"{package} is not installed; in a checkout: pip install '.[otel]'")


def open_telemetry(settings: TelemetrySettings) -> TelemetryRecorder | None:
    """The recorder of this process; None where nothing is to be recorded."""
    if not settings.endpoint:
        return None
    from turnscore_service.telemetry.otlp_exporter import open_exporter

    exporter = open_exporter(settings.endpoint, settings.protocol, settings.headers, settings.service_name)
    return TelemetryRecorder(exporter, sample_share=settings.sample_share, events=settings.events)


def _is_installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:
        return False
