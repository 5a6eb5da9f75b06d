"""Programs that run on the hosts; installed as ``cloudcoll._probes``.

Their contract is in ``README.md`` beside them.
"""
