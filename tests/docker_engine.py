"""The container engine of this machine, and the images that its tests start."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest

ROOT: Final = Path(__file__).parents[1]
GIVEN: Final = os.environ.get("ANABRANCH_IMAGE")
"""An image that is used as it is."""
IMAGE: Final = GIVEN or "anabranch"
BASE: Final = os.environ.get("ANABRANCH_BASE", "python:3.11-slim")


def docker(*words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a command of `docker` from the working tree; the caller looks at its status."""
    return subprocess.run(["docker", *words], capture_output=True, text=True, check=False, cwd=ROOT, **options)


def engine_networks() -> list[str]:
    """Return the engine's networks. Without an engine the test is skipped, and the reason is loud."""
    if shutil.which("docker") is None:
        pytest.skip("NO DOCKER ENGINE: there is no docker command; the container tests were NOT run")
    asked = docker("info", "--format", "{{json .ServerVersion}}")
    if asked.returncode != 0 or asked.stdout.strip() in ("", '""'):
        pytest.skip(f"NO DOCKER ENGINE RUNS; the container tests were NOT run ({asked.stderr.strip()})")
    return docker("network", "ls", "--format", "{{.Name}}").stdout.split()


def build(
    name: str, *options: str, dockerfile: str = "Dockerfile", context: str = "."
) -> subprocess.CompletedProcess[str]:
    """Build an image of the working tree, on ANABRANCH_BASE if it is set; the caller looks at the status."""
    arguments = ("--network", "host", "--build-arg", f"BASE={BASE}", "--file", dockerfile)
    return docker("build", *arguments, *options, "--tag", name, context)


@functools.cache
def built_image(name: str = IMAGE, dockerfile: str = "Dockerfile", context: str = ".") -> str:
    """Build an image of the working tree, and return its name.

    One that is there may be of another tree. The engine caches the layers of earlier builds.
    """
    if name != GIVEN:
        built = build(name, dockerfile=dockerfile, context=context)
        assert built.returncode == 0, f"{name} does not build:\n{built.stdout[-2000:]}{built.stderr[-2000:]}"
    return name


def compose_command() -> list[str]:
    """Return the words that run Compose. Without it the test is skipped, and the reason is loud."""
    engine_networks()
    if docker("compose", "version").returncode == 0:
        return ["docker", "compose"]
    if shutil.which("docker-compose") is not None:
        return ["docker-compose"]
    pytest.skip("NO DOCKER COMPOSE: the compose files were NOT run")
