"""From what was measured to a network: who shares a switch, and how fast links are.

``fabric`` does it all; ``holdout`` says what its answer is worth.
"""
