"""A CA, and certificates of it for tests."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Sequence
from datetime import timedelta
from functools import cache
from pathlib import Path

from cloudcoll.files import write_atomic
from cloudcoll.tls import Credentials
from cloudcoll.tls.certs import SECRET, Signed, issue, make_ca, now

HOUR = timedelta(hours=1)
FOLDER = tempfile.mkdtemp()
atexit.register(shutil.rmtree, FOLDER)


@cache
def authority(name: str = "ours") -> Signed:
    """Return a CA, the same for all tests."""
    return make_ca(name)


def credentials(
    role: str,
    names: Sequence[str] = (),
    *,
    ca: str = "ours",
    trusts: str = "ours",
    begins: timedelta = -HOUR,
    ends: timedelta = HOUR,
) -> Credentials:
    """Return files with a certificate of a CA; times count from now."""
    end, begin = now() + ends, now() + begins
    name = names[0] if names else role
    signed = issue(authority(ca), name, [role], names, begin=begin, end=end)
    folder = Path(tempfile.mkdtemp(dir=FOLDER))
    write_atomic(folder / "cert", signed.cert_pem)
    write_atomic(folder / "key", signed.key_pem, SECRET)
    write_atomic(folder / "ca", authority(trusts).cert_pem)
    return Credentials(folder / "cert", folder / "key", folder / "ca")
