"""Which programs are taken, and what becomes of the cache; stand-ins in shell script save the real build."""

from pathlib import Path

import pytest

from tests.cluster import programs
from tests.cluster.programs import Program

OTHERS = [name for name in programs.PACKAGES if name != "kubectl"]


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def stand_in(folder: Path, name: str, version: str = "") -> Path:
    """A program that does nothing but say its version."""
    said = version or programs.pinned(name)
    words = {"etcd": f"etcd Version: {said.removeprefix('v')}", "kubectl": f"Client Version: {said}"}
    return script(folder / name, f"echo {words.get(name, f'Kubernetes {said}')}")


def fake_go(folder: Path, build: str, version: str = "go1.26.0") -> None:
    script(
        folder / "go",
        f"""
if [ "$1" = version ]; then echo go version {version} linux/amd64; exit; fi
while [ "$1" != -o ]; do shift; done
{build}""",
    )


SAYS = f"#!/bin/sh\\necho Client Version: {programs.pinned('kubectl')}\\n"
GOOD_BUILD = f"""printf '{SAYS}' > "$2"; /bin/chmod +x "$2" """


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder on PATH, empty; the cache lacks just kubectl."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    for name in OTHERS:
        stand_in(programs.cache(), name)
    return folder


def test_a_kubectl_of_another_minor_on_path_is_not_taken(path: Path) -> None:
    stand_in(path, "kubectl", "v1.32.4-dispatcher")
    cached = stand_in(programs.cache(), "kubectl")
    assert programs.find()["kubectl"] == Program("kubectl", cached, programs.pinned("kubectl"), "cache")


def test_another_patch_of_the_pinned_minor_on_path_is_taken(path: Path) -> None:
    major, minor, _ = programs.pinned("kubectl").split(".")
    mine = stand_in(path, "kubectl", f"{major}.{minor}.99")
    assert programs.find()["kubectl"] == Program("kubectl", mine, f"{major}.{minor}.99", "PATH")


@pytest.mark.parametrize(("version", "place"), [("v3.4.9", "cache"), ("v3.5.0", "PATH"), ("v4.0.0", "cache")])
def test_an_etcd_on_path_is_taken_from_3_5_up_to_the_next_major(path: Path, version: str, place: str) -> None:
    stand_in(path, "etcd", version)
    stand_in(programs.cache(), "kubectl")
    assert programs.find()["etcd"].place == place


@pytest.mark.usefixtures("path")
def test_the_folder_of_the_developer_is_trusted_and_what_it_lacks_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    old = stand_in(tmp_path / "assets", "kubectl", "v1.30.0")
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path / "assets"))
    found = programs.find()
    assert found["kubectl"] == Program("kubectl", old, "v1.30.0", "KUBEBUILDER_ASSETS")
    assert found["kube-controller-manager"].place == "cache"
    assert "kube-controller-manager: not in KUBEBUILDER_ASSETS" in capsys.readouterr().err


def test_a_half_written_file_in_the_cache_is_built_anew(path: Path, found_programs: dict[str, Program]) -> None:
    whole = found_programs["kubectl"].path.read_bytes()
    half = programs.cache() / "kubectl"
    half.write_bytes(whole[: len(whole) // 2])
    half.chmod(0o755)
    (programs.cache() / ".kubectl-of-a-killed-build").mkdir()
    fake_go(path, GOOD_BUILD)
    assert programs.find()["kubectl"].place == "built now"
    assert programs.find()["kubectl"].place == "cache"
    assert {entry.name for entry in programs.cache().iterdir()} == {".lock", *programs.PACKAGES}


def test_an_etcd_of_an_earlier_pin_in_the_cache_is_not_used(path: Path) -> None:
    stand_in(programs.cache(), "etcd", "v3.6.0")
    fake_go(path, "exit 1")
    with pytest.raises(programs.ProgramError, match="building etcd failed"):
        programs.find()


def test_a_failed_build_shows_what_go_said_and_leaves_nothing_in_the_cache(path: Path) -> None:
    fake_go(path, 'echo half > "$2"; echo no such module >&2; exit 3')
    with pytest.raises(programs.ProgramError, match=r"kubectl failed \(exit code 3\)(.|\n)*no such module"):
        programs.find()
    assert {entry.name for entry in programs.cache().iterdir()} == {".lock", *OTHERS}


@pytest.mark.usefixtures("path")
def test_without_go_the_error_says_what_to_install() -> None:
    with pytest.raises(programs.ProgramError, match=r"no `go` on PATH\. Install Go 1\.\d+ or later"):
        programs.find()


def test_a_go_that_is_too_old_is_named_with_its_version(path: Path) -> None:
    fake_go(path, GOOD_BUILD, version="go1.21.3")
    with pytest.raises(programs.ProgramError, match=r"says: go version go1\.21\.3 .* Install Go"):
        programs.find()
