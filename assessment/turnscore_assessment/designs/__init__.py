"""Designs of rating studies: blind and balanced sheets for raters, and the analysis of filled ones."""
