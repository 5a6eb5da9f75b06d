"""What was seen of a network: samples of pairs and hosts, kept in a snapshot."""
