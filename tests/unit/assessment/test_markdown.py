"""Tables in Markdown hold whatever names a file has."""

from turnscore_assessment.rendering import table_row


def test_neither_a_bar_nor_a_line_end_in_a_name_breaks_a_table() -> None:
    assert table_row(["a|b\nc", 1]) == "| a\\|b c | 1 |"
