"""What was seen of a network: samples and snapshots, measured, merged or planted."""
