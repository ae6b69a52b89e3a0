"""The image: what goes into it and what does not, and that its bill of materials is right."""

import json
import re
import runpy
import tomllib
from pathlib import Path
from typing import Any, Final

import pytest

from tests import image
from webhook import __version__

ROOT: Final = Path(__file__).resolve().parents[1]
DOCKERFILE: Final = (ROOT / "Dockerfile").read_text(encoding="utf-8")
INSTALLER: Final = re.compile(r"^(?:pip|ensurepip|setuptools|wheel|gcc|g\+\+|cc|clang|make)(?:[-.\d].*)?$")


@pytest.fixture(scope="module")
def bill() -> dict[str, Any]:
    """The bill of materials of the environment that runs the tests."""
    found: dict[str, Any] = runpy.run_path(str(ROOT / "deploy" / "image" / "sbom.py"))["bill"]()
    return found


def test_the_bill_of_materials_names_what_we_depend_on(bill: dict[str, Any]) -> None:
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    product = bill["metadata"]["component"]
    assert (product["name"], product["type"]) == ("drainproof", "application")
    components = {one["name"]: one for one in bill["components"]}
    assert {"python", "starlette", "uvicorn", "orjson", "cryptography"} <= set(components)
    starlette = components["starlette"]
    assert starlette["purl"] == f"pkg:pypi/starlette@{starlette['version']}"
    assert starlette["licenses"]
    references = {one["bom-ref"] for one in bill["components"]} | {product["bom-ref"]}
    assert len(references) == len(bill["components"]) + 1
    wanted = {one["ref"]: one["dependsOn"] for one in bill["dependencies"]}
    assert starlette["bom-ref"] in wanted[product["bom-ref"]]
    assert {name for names in wanted.values() for name in names} <= references
    assert re.fullmatch(r"urn:uuid:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", bill["serialNumber"])


def test_the_bill_of_materials_is_the_same_for_the_same_environment(bill: dict[str, Any]) -> None:
    again = runpy.run_path(str(ROOT / "deploy" / "image" / "sbom.py"))["bill"]()
    assert json.dumps(again) == json.dumps(bill)


def test_what_the_dockerfile_copies_is_let_through_to_the_build() -> None:
    let = {line[1:].rstrip("/") for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = {
        word.rstrip("/")
        for line in re.findall(r"^COPY (?!--from)(.+)$", DOCKERFILE, re.MULTILINE)
        for word in line.split()[:-1]
    }
    assert copied == let
    assert all((ROOT / name).exists() for name in copied)


def test_an_extra_adds_to_what_is_locked_and_changes_none_of_it() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert set(extras) == {"traces"}
    assert pins("requirements.lock") < pins("requirements-traces.lock") < pins("requirements-dev.lock")
    added = {pin.partition("==")[0] for pin in pins("requirements-traces.lock") - pins("requirements.lock")}
    assert added > {re.split(r"[<>=]", text)[0] for text in extras["traces"]}
    assert '-r "requirements${EXTRAS:+-$EXTRAS}.lock"' in DOCKERFILE


def pins(lock: str) -> set[str]:
    """Each distribution of a lock file with its version."""
    return set(re.findall(r"^[\w.-]+==[^ ;]+", (ROOT / lock).read_text(encoding="utf-8"), re.MULTILINE))


def test_the_dockerfile_installs_only_what_is_known_by_its_hash() -> None:
    installs = re.findall(r"pip\S* (?:--python \S+ )?install((?:.|\\\n)*?)(?:&&|\n[A-Z])", DOCKERFILE)
    assert len(installs) == 3
    assert all("--require-hashes" in words or "--no-index" in words for words in installs)
    assert all("--only-binary :all:" in words for words in installs if "--require-hashes" in words)


def test_the_dockerfile_ends_with_a_user_by_number_and_no_shell() -> None:
    last = DOCKERFILE.rpartition("\nFROM ")[2]
    assert re.search(r"^USER 65532:65532$", last, re.MULTILINE)
    assert re.search(r'^ENTRYPOINT \["/opt/drainproof/bin/drainproof"\]$', last, re.MULTILINE)
    assert "ARG PYTHON_IMAGE=" in DOCKERFILE.partition("\nFROM ")[0]
    labels = set(re.findall(r"org\.opencontainers\.image\.(\w+)=", last))
    assert labels >= {"title", "description", "licenses", "version", "revision"}


@pytest.fixture
def archive(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """The image with the extras that the test names, built anew; skipped where this machine cannot."""
    if image.missing():
        pytest.skip(image.missing())
    capture = request.config.pluginmanager.getplugin("capturemanager")
    assert capture is not None
    with capture.global_and_fixture_disabled():
        return image.build(tmp_path / "drainproof.tar", **getattr(request, "param", {}))


@pytest.mark.cluster
@pytest.mark.timeout(1800)
def test_the_image_holds_the_program_and_nothing_that_installs_or_compiles(archive: Path) -> None:
    assert archive.stat().st_size < 300 << 20
    assert image.run("drainproof", "--version") == f"drainproof, version {__version__}\n"
    assert "Serves the webhooks" in image.run("drainproof", "serve", "--help")
    assert image.run("python", "-c", "import os; print(os.getuid(), os.getgid())") == "65532 65532\n"
    with image.root() as root:
        places = [root / "opt/drainproof/bin", root / "usr/bin", root / "usr/local/bin"]
        places += [*root.glob("usr/lib/python3*"), *root.glob("usr/lib/python3*/dist-packages")]
        places += [*root.glob("usr/local/lib/python3*/site-packages"), *root.glob("opt/drainproof/lib/*/site-packages")]
        assert not [one for place in places if place.is_dir() for one in place.iterdir() if INSTALLER.match(one.name)]
        assert not (root / "usr/share/python-wheels").exists()
        listed = json.loads((root / "opt/drainproof/sbom.cdx.json").read_text(encoding="utf-8"))
        assert {"pip", "setuptools", "pytest", "opentelemetry-api"}.isdisjoint(
            one["name"] for one in listed["components"]
        )
        assert listed["metadata"]["component"]["version"] == __version__
        assert list(root.glob("opt/drainproof/lib/*/site-packages/webhook/__pycache__/cli.*.pyc"))


@pytest.mark.cluster
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("archive", [{"name": "docker.io/local/drainproof:traces", "extras": "traces"}], indirect=True)
def test_the_image_with_the_extra_can_send_traces(archive: Path) -> None:
    assert archive.stat().st_size < 300 << 20
    name = "docker.io/local/drainproof:traces"
    code = "from webhook.tracing import Traces; print(Traces('http://127.0.0.1:1/v1/traces'))"
    assert "Traces object" in image.run("python", "-c", code, image=name)
    with image.root(name) as root:
        listed = json.loads((root / "opt/drainproof/sbom.cdx.json").read_text(encoding="utf-8"))
        assert "opentelemetry-api" in {one["name"] for one in listed["components"]}
