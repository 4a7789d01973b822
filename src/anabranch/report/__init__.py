"""Reports in one HTML file: the parts that the demonstration and the audit share."""
