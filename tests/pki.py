"""A CA, and certificates of it for tests."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Sequence
from datetime import timedelta
from functools import cache
from pathlib import Path

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
    # Not as the product does: nobody else writes here, and nothing is to be kept.
    for name, data in (
        ("cert", signed.cert_pem),
        ("key", signed.key_pem),
        ("ca", authority(trusts).cert_pem),
    ):
        (folder / name).write_bytes(data)
    (folder / "key").chmod(SECRET)
    return Credentials(folder / "cert", folder / "key", folder / "ca")
