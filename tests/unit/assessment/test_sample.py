"""The made-up sample: the same bytes each time, readable by everything that reads the public sets, and told apart."""

from development_sets import read_judged_sets
from turnscore_assessment.commands.data import app
from turnscore_assessment.data.dialogues import ADVERSARIAL_FILE, read_population
from turnscore_assessment.files import read_rows
from turnscore_assessment.sample_data import ROW_FILES, talk_for
from turnscore_exporters.data.pairs import ConvaiSplit, read_engagement_data, read_reference_turns
from typer.testing import CliRunner


def test_the_same_seed_writes_the_same_bytes_and_another_one_others(data_folder):
    for name, make in ROW_FILES.items():
        first, other = ([*make(talk_for(name, seed))] for seed in (0, 1))
        assert [row for _, row in read_rows(data_folder / name)] == first != other


def test_every_reader_of_the_public_sets_reads_it(data_folder):
    judged = {each.name: each for each in read_judged_sets(data_folder, 3000, 0)}
    assert {"persona-zhao (chosen on)", "dbdc3", "convai-thumbs (fitted on)"} <= set(judged)
    assert len(judged["human_assessment dialogues"].items) > 50, "some dialogues must be left that no training draws"
    assert read_population(data_folder).turns
    assert len(read_reference_turns(data_folder, 4000).pairs) >= 200
    assert len([*read_rows(data_folder / ADVERSARIAL_FILE)]) == 120


def test_the_published_counts_are_not_expected_of_it(data_folder):
    data = read_engagement_data(data_folder)
    assert {pair.rating for pair in data.transfer} == {0, 1}
    for by_split in data.convai.pairs.values():
        assert {pair.rating for pair in by_split[ConvaiSplit.TRAIN]} == {0, 1}


def test_a_folder_in_use_is_left_alone(tmp_path):
    (tmp_path / "mine").write_text("keep")
    result = CliRunner().invoke(app, ["sample", str(tmp_path)])
    assert (result.exit_code, "is not empty" in result.output) == (1, True)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
