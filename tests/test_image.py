"""The image of `Dockerfile`: hot modules are compiled, there is no compiler, and the file system may be read-only."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from tests.docker_engine import BASE, GIVEN, build, built_image, docker, engine_networks
from tests.test_compiled import HOT

pytestmark = pytest.mark.docker
CONFINED = ("--network", "none", "--read-only", "--tmpfs", "/tmp", "--cap-drop", "ALL")
FILES = "import importlib, sys; print(*[importlib.import_module(name).__file__ for name in sys.argv[1:]], sep='\\n')"
ADDED_MB = 100
"""What the image may add to its base. A compiler alone would be more."""


@pytest.fixture(scope="module")
def image() -> str:
    engine_networks()
    return built_image()


@pytest.fixture
def container(image: str) -> Iterator[str]:
    """A cluster as the image starts it, in a network of its own."""
    started = docker("run", "--detach", *CONFINED, image)
    assert started.returncode == 0, started.stderr
    name = started.stdout.strip()
    try:
        ready = f"until docker logs {name} 2>&1 | grep -q '^ready '; do sleep 1; done"
        subprocess.run(["bash", "-c", ready], timeout=240, check=True)
        yield name
    finally:
        docker("rm", "--force", "--volumes", name)


def output(image: str, program: str, *words: str) -> str:
    """What a program of the image prints; it must end well."""
    ran = docker("run", "--rm", *CONFINED, "--entrypoint", program, image, *words)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def test_hot_modules_of_the_image_are_compiled(image: str) -> None:
    assert output(image, "anabranch", "--version").endswith(" (compiled: yes)\n")
    files = output(image, "python", "-c", FILES, *("anabranch." + module.replace("/", ".") for module in HOT))
    assert [file for file in files.split() if not file.endswith(".so")] == []
    assert len(files.split()) == len(HOT)


def test_the_image_has_no_compiler_and_stays_small(image: str) -> None:
    assert output(image, "sh", "-c", "for name in cc gcc ld; do command -v $name; done; true") == ""
    sizes = docker("image", "inspect", "--format", "{{.Size}}", image, BASE)
    added = int.__sub__(*map(int, sizes.stdout.split()))
    assert 0 < added < ADDED_MB * 1_000_000, sizes


def test_the_compiled_image_serves_records_on_a_read_only_file_system(container: str) -> None:
    written = docker("exec", container, "touch", "/opt/anabranch/x")
    assert "Read-only file system" in written.stderr
    within = ("exec", "--env", "ANABRANCH_BOOTSTRAP_SERVERS=localhost:9092", container, "anabranch")
    produced = docker(*within, "produce", "greetings", "hello")
    assert produced.returncode == 0, produced.stderr
    consumed = docker(*within, "consume", "greetings", "--until-end")
    assert "hello" in consumed.stdout, consumed.stderr


@pytest.mark.skipif(
    GIVEN is not None, reason="AN IMAGE WITHOUT A COMPILER WAS NOT BUILT: ANABRANCH_IMAGE is set, and used as it is"
)
def test_an_image_without_compiled_modules_needs_no_compiler_and_says_so() -> None:
    engine_networks()
    built = build("anabranch-sources", "--build-arg", "COMPILED=0")
    assert built.returncode == 0, built.stdout + built.stderr
    assert "no module is compiled" in built.stdout
    assert output("anabranch-sources", "anabranch", "--version").endswith(" (compiled: no)\n")


def test_a_build_refuses_other_words_than_0_and_1() -> None:
    engine_networks()
    built = build("anabranch-refused", "--build-arg", "COMPILED=no")
    assert built.returncode != 0
    assert (
        "COMPILED is 1 (compile the hot modules) or 0 (run the Python sources), not 'no'" in built.stdout + built.stderr
    )
