# `make sync-client` made this of _async/__init__.py: change that file.
"""The clients for threads."""
