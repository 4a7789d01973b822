"""Images and compose files: what they start can be started, as a user without rights, on a file system read-only."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import kubernetes_validate
import pytest
import yaml

from anabranch.cli.main import cli
from anabranch.testing.containers import adjacent_free_ports

ROOT = Path(__file__).parents[1]
COMPOSE = [ROOT / "docker-compose.yml", *sorted((ROOT / "deploy").glob("compose.*.yml"))]
OVERLAY = ROOT / "deploy/compose.control.yml"
IMAGES = [ROOT / "Dockerfile", ROOT / "Dockerfile.jvm"]


def parse(words: list[str]) -> None:
    """Parse a command of anabranch, as far as it can be without running it."""
    command: click.Command = cli
    rest = [re.sub(r"\$\{\w+:-([^}]+)\}", r"\1", word) for word in words]
    while isinstance(command, click.Group):
        found = command.get_command(click.Context(command), rest.pop(0))
        assert found is not None, words
        command = found
    command.make_context("anabranch", rest)


def services(path: Path) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = yaml.safe_load(path.read_text())["services"]
    return found


@pytest.mark.parametrize("path", COMPOSE, ids=lambda path: path.name)
def test_commands_of_compose_files_can_be_given(path: Path) -> None:
    for service in services(path).values():
        parse(service["command"])
        if path != OVERLAY:
            build = service["build"]
            assert build["args"] == {"BASE": "${BASE:-python:3.11-slim}", "COMPILED": "${COMPILED:-1}"}
            assert (path.parent / build["context"] / build.get("dockerfile", "Dockerfile")).is_file()


def test_overlay_needs_no_image_but_those_of_the_file_below() -> None:
    below = services(ROOT / "docker-compose.yml")
    for name, service in services(OVERLAY).items():
        assert "build" not in service and service.get("image") in (None, below["broker-1"]["image"])
        assert service["pid"] == "host"
        assert name == "front" or service["command"][: len(below[name]["command"])] == below[name]["command"]


@pytest.mark.parametrize("path", IMAGES, ids=lambda path: path.name)
def test_an_image_runs_without_rights_and_has_a_health_check(path: Path) -> None:
    text = path.read_text()
    assert re.search(r"^USER 9092:9092$", text, re.MULTILINE), "by number, for runAsNonRoot"
    started, checked = re.findall(r"^(?:CMD|HEALTHCHECK .* CMD) (\[.+\])$", text, re.MULTILINE)
    parse(json.loads(started))
    parse(json.loads(checked)[1:])


@pytest.mark.parametrize("path", IMAGES, ids=lambda path: path.name)
def test_what_an_image_copies_is_in_the_context(path: Path) -> None:
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    lines = re.findall(r"^COPY (?!--from)(.+) \S+$", path.read_text(), re.MULTILINE)
    copied = {word for line in lines for word in line.split()}
    assert copied and copied <= allowed and all((ROOT / name).exists() for name in copied)


def test_a_plain_build_has_no_stage_for_java() -> None:
    """A builder without BuildKit makes each stage of a file, also those that the last one does not need."""
    stages = re.findall(r"^FROM .* AS (\w+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert stages == ["wheel", "dependencies", "build", "node"]


def test_both_images_are_made_from_one_wheel() -> None:
    """The engine knows a stage by its text: where they differ, it compiles the modules a second time."""
    node, jvm = (re.findall(r"^FROM \S+ AS wheel\n(?:.+\n)+", path.read_text(), re.MULTILINE) for path in IMAGES)
    assert node == jvm and "ANABRANCH_COMPILE=$COMPILED" in node[0]


@pytest.mark.parametrize("kind", ["dashboard", "secured"])
def test_a_container_has_nothing_to_write_to_but_its_data(kind: str) -> None:
    (service,) = services(ROOT / f"deploy/compose.{kind}.yml").values()
    assert service["read_only"] and service["cap_drop"] == ["ALL"]
    assert [one for one in service["volumes"] if not one.endswith(":ro")] == ["kafka:/data"]
    assert all(port.startswith("127.0.0.1:") for port in service["ports"])


MANIFESTS = [one for one in yaml.safe_load_all((ROOT / "deploy/kubernetes/anabranch.yaml").read_text()) if one]


@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda one: f"{one['kind']} {one['metadata']['name']}")
def test_a_manifest_is_what_kubernetes_takes(manifest: dict[str, Any]) -> None:
    """By Kubernetes' own schemas, which refuse unknown fields."""
    kubernetes_validate.validate(manifest, "1.31", strict=True)
    if manifest["kind"] == "StatefulSet":
        (container,) = manifest["spec"]["template"]["spec"]["containers"]
        parse([word.replace("$(POD_INDEX)", "0").replace("$(POD_NAME)", "a-0") for word in container["args"]])
        parse(container["readinessProbe"]["exec"]["command"][1:])
        assert container["securityContext"]["readOnlyRootFilesystem"]


def github_steps() -> list[str]:
    steps = yaml.safe_load((ROOT / "examples/ci/github.yml").read_text())["jobs"]["test"]["steps"]
    return [step["run"] for step in steps if "run" in step]


def gitlab_steps() -> list[str]:
    job = yaml.safe_load((ROOT / "examples/ci/gitlab.yml").read_text())["test"]
    return [*job["before_script"], *job["script"]]


@pytest.mark.processes
@pytest.mark.parametrize("steps", [github_steps(), gitlab_steps()], ids=["github", "gitlab"])
def test_the_steps_of_a_pipeline_run(steps: list[str], tmp_path: Path) -> None:
    """All but the installation, on a free port, in one shell, which ends the cluster with itself."""
    install, *others = steps
    assert install.startswith("pip install 'anabranch")
    script = "\n".join(["set -e", "trap 'kill $(jobs -p)' EXIT", *others]).replace("29092", str(adjacent_free_ports(3)))
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    words = ["bash", "-c", script]
    env = {**os.environ, "PATH": path}
    done = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "42  created" in done.stdout
