"""Reports that one HTML file holds: what the demonstration and the audit draw alike."""
