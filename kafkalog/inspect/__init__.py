"""Looking into logs: tables as text and HTML, figures of a log, plots, and the report page on whole directories."""
