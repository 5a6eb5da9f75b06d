"""Measure a collective in several orders of hosts, taking turns."""
