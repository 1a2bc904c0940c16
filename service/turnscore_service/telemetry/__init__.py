"""Telemetry: spans and evaluation events of OpenTelemetry, where a collector is configured."""
