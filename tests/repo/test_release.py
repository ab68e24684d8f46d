"""A release has one version, all packages, a valid citation, wheels and valid templates."""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

import fedsuplin

ROOT = Path(__file__).parents[2]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
WHEELS = {  # by platform of cibuildwheel
    "linux": ("manylinux_x86_64", "manylinux_aarch64"),
    "macos": ("macosx_x86_64", "macosx_arm64"),
    "windows": ("win_amd64",),
}


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def test_the_version_is_the_same_everywhere_and_written_once() -> None:
    assert importlib.metadata.version("fedsuplin") == fedsuplin.__version__
    newest = re.search(
        r"^## (\S+) \((?:not yet released|\d{4}-\d\d-\d\d)\)$", read("CHANGELOG.md"), re.MULTILINE
    )
    assert newest and newest[1] == fedsuplin.__version__
    assert yaml.safe_load(read("CITATION.cff"))["version"] == fedsuplin.__version__
    assert PROJECT["project"]["dynamic"] == ["version"] and "version" not in PROJECT["project"]
    assert fedsuplin.__version__ not in read("setup.py") + read("README.md")


def test_the_citation_names_the_paper_and_this_software() -> None:
    """The whole schema is checked where it can be, by cffconvert --validate: CONTRIBUTING.md."""
    citation = yaml.safe_load(read("CITATION.cff"))
    assert {
        "cff-version",
        "message",
        "title",
        "authors",
        "type",
        "version",
        "license",
    } <= citation.keys()
    assert citation["license"] == PROJECT["project"]["license"] == "MIT" and read(
        "LICENSE"
    ).startswith("MIT License")
    (paper,) = citation["references"]
    assert (
        paper["title"] == "Federated Linear Bandits with Finite Adversarial Actions"
        and paper["year"] == 2023
    )
    assert [person["family-names"] for person in paper["authors"]] == [
        "Fan",
        "Zhou",
        "Tian",
        "Shen",
    ]


@pytest.mark.tree
def test_every_package_folder_is_in_the_list_of_packages() -> None:
    """Else: packages in pyproject.toml. A folder that is missing there is missing in a wheel."""
    settings = PROJECT["tool"]["setuptools"]
    found = []
    for package, folder in settings["package-dir"].items():
        place = ROOT / folder
        for init in place.rglob("__init__.py"):
            found.append(".".join([package, *init.parent.relative_to(place).parts]))
    assert sorted(found) == sorted(settings["packages"]) == settings["packages"]
    with_code = {path.parent for path in (ROOT / "fedsuplin").rglob("*.py")}
    assert all((folder / "__init__.py").exists() for folder in with_code)


@pytest.mark.parametrize("platform", WHEELS)
def test_cibuildwheel_would_build_what_we_say(platform: str) -> None:
    command = [
        sys.executable,
        "-m",
        "cibuildwheel",
        "--platform",
        platform,
        "--print-build-identifiers",
        str(ROOT),
    ]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    expected = [
        f"cp{python.replace('.', '')}-{tag}" for python in PYTHONS for tag in WHEELS[platform]
    ]
    assert sorted(printed) == sorted(expected)


def test_the_pythons_of_the_wheels_are_those_of_the_metadata_and_of_the_docs() -> None:
    listed = re.findall(
        r"Programming Language :: Python :: (3\.\d+)", "\n".join(PROJECT["project"]["classifiers"])
    )
    assert tuple(listed) == PYTHONS
    assert PROJECT["project"]["requires-python"] == f">={PYTHONS[0]}"
    assert f"CPython {PYTHONS[0]} to {PYTHONS[-1]}" in read("docs/wheels.md")


def test_the_wheels_are_tested_on_machines_of_every_architecture() -> None:
    jobs = yaml.safe_load(read(".github/workflows/wheels.yml"))["jobs"]
    machines = jobs["wheels"]["strategy"]["matrix"]["include"]
    built = {"ubuntu": "linux", "macos": "macos", "windows": "windows"}
    found = {(built[machine["os"].partition("-")[0]], machine["archs"]) for machine in machines}
    settings = PROJECT["tool"]["cibuildwheel"]
    assert found == {
        (platform, arch) for platform in WHEELS for arch in settings[platform]["archs"]
    }
    assert settings["test-extras"] == ["test"] and settings["test-command"].endswith(" tests")
    assert "fedsuplin" not in settings["test-sources"] and all(
        (ROOT / name).exists() for name in settings["test-sources"]
    )


@pytest.mark.parametrize(
    "path", sorted((ROOT / ".github").rglob("*.yml")), ids=lambda path: path.name
)
def test_workflows_and_templates_parse(path: Path) -> None:
    found = yaml.safe_load(path.read_text(encoding="utf-8"))
    if path.parent.name == "workflows":
        for job in found["jobs"].values():
            assert job["timeout-minutes"] and job["steps"]
    elif path.stem != "config":
        assert found["name"] and found["description"] and found["body"]


def test_a_source_distribution_has_the_files_of_a_release() -> None:
    """The files that pip does not add by itself are named in MANIFEST.in."""
    manifest = read("MANIFEST.in")
    for name in ("README.md", "LICENSE", "CHANGELOG.md", "CITATION.cff", "CONTRIBUTING.md"):
        assert (ROOT / name).is_file() and name in manifest
