"""``python -m cloudcoll.cli``: the same as the ``cloudcoll`` program."""

import sys

from cloudcoll.cli import main

code = main()
# CPython (seen in 3.8 to 3.13; Python/pythonrun.c) remembers a Ctrl-C that fell into an
# `exec` of a string, as dataclasses use it, and ends `-m` by that signal though we
# handled it. The next `exec` forgets it.
exec("")
sys.exit(code)
