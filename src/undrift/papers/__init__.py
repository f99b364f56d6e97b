"""The experiments of the five papers: every table and figure as a file, at the paper's scale and at a small one."""

from undrift.papers.catalogue import Item, Paper, paper, papers
from undrift.papers.estimate import CostEstimate, Steps, estimate
from undrift.papers.results import ResultLine, compare_with_published, result_cells
from undrift.papers.runner import comparison, folder_of, perform, rehearse

__all__ = [
    "CostEstimate",
    "Item",
    "Paper",
    "ResultLine",
    "Steps",
    "compare_with_published",
    "comparison",
    "estimate",
    "folder_of",
    "paper",
    "papers",
    "perform",
    "rehearse",
    "result_cells",
]
