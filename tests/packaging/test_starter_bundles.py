from support.files import ROOT
from turnscore_models.bundle import read_bundle, starter_bundles

MOST = 95_000_000  # bytes. Specified: all starter bundles together, so that a clone and a wheel stay small.


def test_the_starter_bundles_together_stay_small_and_are_whole_and_their_agreement_was_measured():
    bundles = list(map(read_bundle, starter_bundles()))
    assert len({each.manifest.kind for each in bundles}) == len(bundles)
    assert sum(path.stat().st_size for each in bundles for path in each.folder.rglob("*") if path.is_file()) < MOST
    table = (ROOT / "results" / "agreement-table.json").read_text(encoding="utf-8")
    for each in bundles:  # of user turns, which reaction scores, the table says nothing
        assert f"{each.manifest.reference} (cpu-int8, {each.digest[:12]})" in table or each.manifest.kind == "reaction"
