from pathlib import Path

import pytest
from turnscore_bench.harness.page import BEGIN, END, MissingMarkersError, markers, write_between_markers
from turnscore_bench.servers.report import read_results, write_report
from turnscore_bench.servers.results import BARE, Measurement, Results
from turnscore_bench.servers.tables import tables


@pytest.fixture
def results() -> Results:
    return Results(
        conditions={"caption": "Measured nowhere."},
        labels={"turnscore": "turnscore", "other": "another server"},
        measurements=[
            Measurement(contender=BARE, mix="mixed", clients=0, turns=1000, wall_seconds=4.0, cpu_seconds=8.0),
            Measurement(
                contender="turnscore",
                mix="mixed",
                clients=32,
                turns=1000,
                wall_seconds=5.0,
                cpu_seconds=10.0,
                p50_ms=3.25,
                p99_ms=9.5,
            ),
            Measurement(
                contender="other",
                mix="mixed",
                clients=32,
                turns=1000,
                wall_seconds=20.0,
                cpu_seconds=40.0,
                refused=7,
                failed=2,
            ),
        ],
        bare_single_p50_ms={"mixed": [5.0]},
        not_run={"infinity": "pip ended with 1:\n no `torch`"},
    )


def test_tables_hold_every_measurement_its_ratios_and_what_was_not_run(results: Results) -> None:
    text = tables(results, "plot.svg")
    assert text.startswith("Measured nowhere. Medians of 1 rounds.")
    assert "| bare runtime, ideal batches |  | 8.00 | 1.00 | 250 | - |" in text
    assert "| turnscore | 32 | 10.00 | 1.25 | 200 | 3.2 | 9.5 | 0.0 % | 0 | 0 |" in text
    assert "| another server | 32 | 40.00 | 5.00 | 50 | 0.0 | 0.0 | 0.0 % | 7 | 2 |" in text
    assert "| mixed | 32 | turnscore | 1.25 | - | 4.0 |" in text
    assert "- infinity: `pip ended with 1: no 'torch'`" in text


def test_prose_around_the_markers_stays(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    for _ in range(2):
        write_between_markers(page, "fresh")
    assert page.read_text() == f"before\n{BEGIN}\n\nfresh\n\n{END}\nafter\n"


@pytest.mark.parametrize("text", ["no markers", f"only {BEGIN}", f"{END} before {BEGIN}"])
def test_a_page_without_a_place_for_the_tables_is_left_alone(tmp_path: Path, text: str) -> None:
    page = tmp_path / "page.md"
    page.write_text(text)
    with pytest.raises(MissingMarkersError, match=r"page\.md"):
        write_between_markers(page, "fresh")
    assert page.read_text() == text


def test_a_report_is_json_a_plot_and_the_page_beside_its_plot(tmp_path: Path, results: Results) -> None:
    page = tmp_path / "docs" / "benchmarks.md"
    page.parent.mkdir()
    page.write_text(f"{BEGIN}{END}")
    write_report(results, tmp_path, page)
    assert read_results(tmp_path) == results
    assert "![CPU and throughput](benchmarks/servers.svg)" in page.read_text()
    plot = (tmp_path / "docs" / "benchmarks" / "servers.svg").read_bytes()
    assert plot.startswith(b"<?xml")
    assert plot == (tmp_path / "servers.svg").read_bytes()


@pytest.mark.parametrize("command", ["make bench", "make bench-gpu"])
def test_the_committed_page_has_a_place_for_the_tables(command: str) -> None:
    text = (Path(__file__).parents[3] / "docs" / "benchmarks.md").read_text()
    begin, end = (text.find(each) for each in markers(command))
    assert 0 < begin < end


def test_without_an_earlier_run_there_is_nothing_to_add_to(tmp_path: Path) -> None:
    assert read_results(tmp_path) == Results()
