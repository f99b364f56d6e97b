"""Figures, described once and drawn for the page and for print."""
