"""The report of an evaluation: plots and one HTML page."""
