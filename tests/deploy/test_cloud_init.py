"""The user data, by cloud-init's own schema."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from needs import CLOUD_INIT, CLOUD_INIT_SCHEMA

ROOT = Path(__file__).parents[2]
FILE = ROOT / "deploy" / "cloud-init" / "user-data.yaml"


@pytest.mark.system
@CLOUD_INIT.mark
def test_cloud_init_takes_it() -> None:
    """Tests keys, which the schema itself leaves open, and what they hold."""
    schema = json.loads(CLOUD_INIT_SCHEMA[0].read_text())
    known = {
        key for part in schema["$defs"].values() for key in part.get("properties", ())
    }
    data: dict[str, Any] = yaml.safe_load(FILE.read_text())
    assert set(data) <= known
    jsonschema.Draft4Validator(schema).validate(data)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft4Validator(schema).validate(data | {"packages": "python3-venv"})


def test_clouds_know_what_it_is() -> None:
    """Tests the first line, without which it would be a script, and its size.

    16 KiB is what AWS takes, the least of the three.
    """
    text = FILE.read_text()
    assert text.startswith("#cloud-config\n")
    assert len(text) < 16 << 10


def test_it_installs_what_the_wheel_brings() -> None:
    """Tests that the unit is in deploy/, from where setup.cfg takes it."""
    commands = yaml.safe_load(FILE.read_text())["runcmd"]
    (copied,) = (line.split()[1] for line in commands if isinstance(line, str))
    assert (ROOT / copied.removeprefix("/opt/cloudcoll/share/cloudcoll/")).is_file()
