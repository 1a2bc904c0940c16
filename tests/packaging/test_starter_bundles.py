from turnscore_models.bundle import read_bundle, starter_bundles

MOST_BYTES = 95_000_000  # Specified: all starter bundles together, so that a clone and a wheel stay small.


def test_the_starter_bundles_together_stay_small_and_are_whole():
    folders = starter_bundles()
    kinds = [read_bundle(folder).manifest.kind for folder in folders]
    assert kinds == sorted(set(kinds))
    assert sum(path.stat().st_size for folder in folders for path in folder.rglob("*") if path.is_file()) < MOST_BYTES
