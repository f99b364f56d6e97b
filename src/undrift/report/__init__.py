"""Reports: one HTML file that explains runs to every reader, and the same figures for print."""

from undrift.report.collect import collect
from undrift.report.draw.print_figures import write_print, write_prints
from undrift.report.index import IndexRow, index_rows, is_collection, render_index, write_each, write_index
from undrift.report.kinds import KINDS
from undrift.report.loaded import Material, ReportError
from undrift.report.page import render, write_page
from undrift.report.panels.partition import write_partition
from undrift.report.sections import Section, sections
from undrift.report.single import draw_kind
from undrift.report.sweeps.sweep import draw_sweep, sweep_figure

__all__ = [
    "KINDS",
    "IndexRow",
    "Material",
    "ReportError",
    "Section",
    "collect",
    "draw_kind",
    "draw_sweep",
    "index_rows",
    "is_collection",
    "render",
    "render_index",
    "sections",
    "sweep_figure",
    "write_each",
    "write_index",
    "write_page",
    "write_partition",
    "write_print",
    "write_prints",
]
