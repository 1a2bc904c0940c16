"""What every bundle is written with: files, self-test, parity. Knows no scorer."""
