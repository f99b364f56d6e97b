"""The experiments of the five papers: every table and figure as a file, at the paper's scale and at a small one."""

from undrift.papers.catalogue import Item, Paper, paper, papers
from undrift.papers.estimate import Estimate, Steps, estimate
from undrift.papers.perform import comparison, crossed, perform, place, rehearse
from undrift.papers.results import Line, beside, texts

__all__ = [
    "Estimate",
    "Item",
    "Line",
    "Paper",
    "Steps",
    "beside",
    "comparison",
    "crossed",
    "estimate",
    "paper",
    "papers",
    "perform",
    "place",
    "rehearse",
    "texts",
]
