"""Figures, tables and pages of results: what is drawn, and how."""
