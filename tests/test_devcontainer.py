"""The development container has what `make` needs, and its commands can be run."""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any, Final

import pytest

from tests.docker_engine import ROOT, built_image, docker, engine_networks

FOLDER: Final = ROOT / ".devcontainer"
KEYS: Final = {"build", "customizations", "forwardPorts", "name", "portsAttributes", "postCreateCommand", "remoteUser"}
"""The specification's words for what is used here; its tools ignore a misspelt one without a message."""


def configuration() -> dict[str, Any]:
    read: dict[str, Any] = json.loads((FOLDER / "devcontainer.json").read_text())
    return read


def test_a_devcontainer_has_no_key_that_the_specification_lacks() -> None:
    written = configuration()
    assert written.keys() <= KEYS
    assert written["build"].keys() <= {"dockerfile", "context", "args", "target"}
    assert (FOLDER / written["build"]["dockerfile"]).is_file()


def test_the_command_of_a_devcontainer_installs_the_development_environment() -> None:
    words = configuration()["postCreateCommand"].split()
    environment = {**os.environ, "MAKEFLAGS": "nB"}  # show all that would be run
    shown = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, check=True).stdout
    assert "-m venv .venv" in shown
    assert ",dev]'" in shown


@pytest.mark.docker
def test_the_image_of_a_devcontainer_has_the_programs_of_the_tests() -> None:
    engine_networks()
    image = built_image("anabranch-devcontainer", ".devcontainer/Dockerfile", ".devcontainer")
    script = "id -un && java -version && make --version && git --version && python3 -m venv /tmp/venv"
    ran = docker("run", "--rm", "--network", "none", image, "sh", "-ec", script)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.startswith(f"{configuration()['remoteUser']}\n")
