"""The order audit: a Structured Streaming query over what consumers handed to applications (D12)."""
