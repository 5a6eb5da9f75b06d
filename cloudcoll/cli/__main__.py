"""``python -m cloudcoll.cli``: the same as the ``cloudcoll`` program."""

import sys

from cloudcoll.cli import main

sys.exit(main())
