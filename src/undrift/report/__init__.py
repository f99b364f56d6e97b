"""Reports: one HTML file that explains runs to whoever opens it, and the same figures for print."""

from undrift.report.collect import Material, ReportError, collect
from undrift.report.page import render, write_page
from undrift.report.partition import write_partition
from undrift.report.prints import write_print, write_prints
from undrift.report.sections import Section, sections
from undrift.report.single import KINDS, draw_kind
from undrift.report.sweep import draw_sweep, sweep_figure

__all__ = [
    "KINDS",
    "Material",
    "ReportError",
    "Section",
    "collect",
    "draw_kind",
    "draw_sweep",
    "render",
    "sections",
    "sweep_figure",
    "write_page",
    "write_partition",
    "write_print",
    "write_prints",
]
