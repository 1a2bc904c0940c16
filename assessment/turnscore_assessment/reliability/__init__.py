"""Reliability: how far raters agree beyond chance, by intraclass correlation and Krippendorff's alpha."""
