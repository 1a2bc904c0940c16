"""Designs of rating studies: sheets that raters fill, blind and balanced, and what filled sheets say."""
