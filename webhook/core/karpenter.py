"""What Karpenter's own objects tell of it, and the facts document that this comes to.

Facts: its chart labels the Deployment with the version (Karpenter v1.15.0 kwok/charts/templates/_helpers.tpl) and calls
the container `controller`; karpenter.sh/v1 NodePools have spec.template.spec.terminationGracePeriod, without a default
(v1.15.0 pkg/apis/crds/karpenter.sh_nodepools.yaml).
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from webhook.core import policy
from webhook.core.option import Duration, OptionError, value_of
from webhook.core.patch import at, entries, mapping
from webhook.core.ruleset import API_VERSION

CONTAINERS: Final = ("controller", "karpenter")
_LABEL: Final = ("metadata", "labels", "app.kubernetes.io/version")
_LIMIT: Final = ("spec", "template", "spec", "terminationGracePeriod")
_VERSION: Final = re.compile(r"v?([0-9]{1,6})\.([0-9]{1,6})\.([0-9]{1,6})(?:[-+].*)?")

Version = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Known:
    """What is known: Karpenter's version, and the terminationGracePeriod of each NodePool that has one."""

    version: Version | None = None
    limits: Mapping[str, Any] = field(default_factory=dict)

    @property
    def document(self) -> dict[str, Any]:
        """The facts document."""
        version = {"karpenter": {"version": written(self.version)}} if self.version else {}
        return {"apiVersion": API_VERSION, "kind": "Facts", **version, "nodepools": dict(sorted(self.limits.items()))}


def known(document: Any) -> Known | None:
    """What a facts document says; None where it cannot be used."""
    try:
        facts = policy.facts(document)
    except policy.PolicyError:
        return None
    return Known(facts.karpenter, {str(name): limit for name, limit in mapping(document, "nodepools").items()})


def version(deployment: Any) -> Version | None:
    """The version of Karpenter in a Deployment, by its label or else by the tag of its image; None where neither says.

    What comes after the three numbers, as in 1.12.0-rc.1, does not count.
    """
    names = [str(at(deployment, _LABEL, ""))]
    for container in entries(deployment, "spec", "template", "spec", "containers"):
        if at(container, ("name",)) in CONTAINERS:
            image = str(at(container, ("image",), "")).partition("@")[0]  # a digest says nothing
            names.append(image.rpartition("/")[2].partition(":")[2])
    found = next((match for match in map(_VERSION.fullmatch, names) if match), None)
    return (int(found[1]), int(found[2]), int(found[3])) if found else None


def limits(pools: Iterable[Any]) -> dict[str, Any]:
    """The terminationGracePeriod of each NodePool that has one which can be read."""
    found = {str(at(pool, ("metadata", "name"), "")): at(pool, _LIMIT) for pool in pools}
    return {name: limit for name, limit in found.items() if _is_duration(limit)}


def written(version: Version) -> str:
    """A version as text."""
    return ".".join(map(str, version))


def _is_duration(limit: Any) -> bool:
    try:
        value_of(Duration, limit)
    except OptionError:
        return False
    return True
