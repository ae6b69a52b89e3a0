"""Prints a bill of materials (CycloneDX 1.6, JSON) of the Python distributions in the environment that runs it.

It is the same for the same environment: no time, and a serial number that comes from the content.
"""

import json
import platform
import re
import sys
import uuid
from importlib import metadata
from typing import Any

PRODUCT = "drainproof"
NAMESPACE = uuid.UUID("6f0a1d1e-3f0b-5d65-9a3e-9a0f4c6f6b1d")  # any fixed one: it makes serial numbers


def bill() -> dict[str, Any]:
    """The document. Raises PackageNotFoundError where the product itself is not installed."""
    product = metadata.distribution(PRODUCT)
    others = {key(one): one for one in metadata.distributions() if key(one) != PRODUCT}
    components = [interpreter(), *(component(others[name]) for name in sorted(others))]
    serial = uuid.uuid5(NAMESPACE, json.dumps([component(product), *components], sort_keys=True))
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
        "metadata": {"component": component(product) | {"type": "application"}},
        "components": components,
        "dependencies": [
            {"ref": reference(one), "dependsOn": sorted(reference(others[name]) for name in needed(one, set(others)))}
            for one in (product, *(others[name] for name in sorted(others)))
        ],
    }


def component(one: metadata.Distribution) -> dict[str, Any]:
    """A distribution as a component."""
    found: dict[str, Any] = {
        "type": "library",
        "bom-ref": reference(one),
        "name": key(one),
        "version": one.version,
        "purl": reference(one),
    }
    licences = licence(one)
    return found | ({"licenses": licences} if licences else {})


def interpreter() -> dict[str, Any]:
    """The Python that runs it all."""
    version = platform.python_version()
    return {
        "type": "platform",
        "bom-ref": f"pkg:generic/python@{version}",
        "name": "python",
        "version": version,
        "purl": f"pkg:generic/python@{version}",
        "licenses": [{"license": {"id": "Python-2.0"}}],
    }


def licence(one: metadata.Distribution) -> list[dict[str, Any]]:
    """What a distribution says of its licence: an SPDX expression where it has one, else its own words."""
    about = one.metadata
    if about["License-Expression"]:
        return [{"expression": about["License-Expression"]}]
    classifiers = [text.rpartition(" :: ")[2] for text in about.get_all("Classifier") or [] if "License ::" in text]
    names = classifiers or [text for text in [about["License"]] if text and "\n" not in text]
    return [{"license": {"name": name}} for name in names]


def needed(one: metadata.Distribution, known: set[str]) -> set[str]:
    """The distributions in `known` that this one asks for."""
    names = (re.split(r"[^A-Za-z0-9._-]", text, maxsplit=1)[0] for text in one.requires or [] if "extra ==" not in text)
    return {normal(name) for name in names} & known


def key(one: metadata.Distribution) -> str:
    """The normal form of a distribution's name."""
    return normal(one.metadata["Name"])


def normal(name: str) -> str:
    """A name as package indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def reference(one: metadata.Distribution) -> str:
    """The package URL of a distribution."""
    return f"pkg:pypi/{key(one)}@{one.version}"


if __name__ == "__main__":
    json.dump(bill(), sys.stdout, indent=1, sort_keys=True)
    print()
