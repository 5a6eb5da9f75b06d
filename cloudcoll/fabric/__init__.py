"""The model of the network: a tree of groups joined by links.

``tree`` is the value, ``infer`` makes one from a snapshot, ``synth`` plants
one to test against.
"""
