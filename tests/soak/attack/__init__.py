"""Attacks on the program as it is: see ``__main__.py``."""
