"""A report on a phone, where the first column of a table stays at the left."""

from importlib.resources import files


def test_names_in_the_first_column_are_broken_between_words_first() -> None:
    """With "anywhere" a browser made the column two letters wide."""
    narrow = files("undrift.report").joinpath("page.css").read_text().partition("@media (max-width: 40rem)")[2]
    rule = narrow.partition("tbody th:first-child {")[2].partition("}")[0]
    assert "max-width: 30vw" in rule and "overflow-wrap: break-word" in rule
