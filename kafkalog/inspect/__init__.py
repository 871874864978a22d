"""Inspection of logs: tables as text and HTML, statistics, plots, and the report page on whole directories."""
