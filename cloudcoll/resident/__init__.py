"""Agents that wait on their hosts for a driver, where there is no ssh.

`listen` runs on each host, `dial` is the driver's end of all connections. Both begin
with `greeting` and go on by `relay`. What they carry is what an agent says over ssh.
"""
