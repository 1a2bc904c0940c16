"""What every benchmark shares: processes, load generators, traffic, the page that tables go to."""
