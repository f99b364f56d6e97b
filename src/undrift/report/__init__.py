"""Reports: one HTML file that explains runs to whoever opens it, and the same figures for print."""

from undrift.report.collect import Material, ReportError, collect
from undrift.report.page import render, write_page
from undrift.report.prints import write_prints
from undrift.report.sections import Section, sections

__all__ = ["Material", "ReportError", "Section", "collect", "render", "sections", "write_page", "write_prints"]
