"""An independent judge of order. It reads a topic and recorded deliveries, and shares no code with other packages."""
