"""`anabranch proxy`: fault rules and the journal in front of any cluster that speaks Kafka's protocol."""
