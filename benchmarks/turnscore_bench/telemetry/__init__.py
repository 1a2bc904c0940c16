"""What telemetry costs: the same requests to services that record nothing, a little, and everything."""
