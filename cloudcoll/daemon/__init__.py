"""Keep snapshot and maps of a set of hosts fresh, in the background."""
