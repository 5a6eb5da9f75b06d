"""The network as a value: hosts in groups in groups, joined by links.

Nothing here measures or guesses. ``tree`` is the value, and its links as arrays;
``fair`` says how fast flows run that share links; ``forms`` writes and reads it.
"""
