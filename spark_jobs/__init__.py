"""The order audit: a Structured Streaming query over the deliveries of consumers (D12)."""
