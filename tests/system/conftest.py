from __future__ import annotations

import os
from pathlib import Path

# Slurm's daemons give up their groups, which only real root may.
ROOT = os.geteuid() == 0 and Path("/proc/self/setgroups").read_text() == "allow\n"
collect_ignore = [] if ROOT else ["test_slurm.py", "test_slurm_scripts.py"]
