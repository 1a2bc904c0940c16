"""Switches: a service whose model is changed again and again under load; what callers see, and what stays in memory."""
