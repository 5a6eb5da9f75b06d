"""Choose the algorithms of a job together with its order."""
