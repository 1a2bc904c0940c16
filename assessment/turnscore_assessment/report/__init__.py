"""The report on one study: what is in it, and how it is written as JSON, CSV and one HTML page."""
