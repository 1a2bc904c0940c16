"""The agreement table of a small sample: every set and every number of a scorer stands in it."""

import json

from agreement_table import app
from support.bundles import make_quality_bundle
from support.files import invoke


def test_every_detail_and_baseline_of_a_scorer_stands_in_every_set(data_folder, tmp_path):
    page, output = tmp_path / "page.md", tmp_path / "table.json"
    bundle = make_quality_bundle(tmp_path / "bundle").folder
    few = ["--turns", 40, "--contexts", 3, "--rounds", 5]
    invoke(app, [data_folder, "--bundle", f"{bundle}/", "--output", output, "--page", page, *few])
    tables = {each["title"]: each for each in json.loads(output.read_text())["tables"]}
    whole = tables["All sets"]
    assert {"dbdc3", "dbdc3 dialogues", "convai2-grade (chosen on)", "mean"} <= {*whole["columns"]}
    names = {row[0] for row in whole["rows"]}
    assert {"quality", "quality: relevant", "length in characters", "position in the dialogue"} <= names
    assert {row[1] for row in tables["adversarial_responses"]["rows"]} == {"random", "adversarial"}
    assert "People's order, best first" in page.read_text()
