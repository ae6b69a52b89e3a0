"""Whose installation there is, asked before anything is removed."""

from collections.abc import Iterator
from dataclasses import dataclass

from webhook.controller.api import Api, ApiError
from webhook.uninstall import kinds, ownership
from webhook.uninstall.ownership import Release
from webhook.uninstall.survey import survey

_UNANSWERED = frozenset({0, 401})  # nobody is there, or nobody who knows us


@dataclass(frozen=True, slots=True)
class Claim:
    """The namespaces that what is cluster-wide stands for, and the releases of Helm that hold some of it."""

    namespaces: frozenset[str]
    releases: tuple[Release, ...]

    def elsewhere(self, namespace: str) -> Iterator[str]:
        """Why nothing may be removed for an installation in `namespace`."""
        for other in sorted(self.namespaces - {namespace}):
            yield f"what is there belongs to an installation in another namespace: give --namespace {other}"

    def by_helm(self) -> Iterator[str]:
        """Why something else should remove it."""
        for release in self.releases:
            yield (
                f"Helm installed it, and `{release.uninstall}` removes it with its record; --without-helm removes it "
                "all the same, and --configurations-only is enough for nobody to ask the webhook any more"
            )


def claim(api: Api, namespace: str, only_configurations: bool) -> Claim:
    """Looks at what stands for a namespace. Raises ApiError where nobody answers."""
    others = () if only_configurations else (kinds.DEPLOYMENTS, kinds.BINDINGS)
    namespaces: set[str] = set()
    releases: dict[Release, None] = {}
    for one in survey(api, (*kinds.CONFIGURATIONS, *others), namespace, by_name=only_configurations):
        if isinstance(one, ApiError):
            if one.status in _UNANSWERED:
                raise one
            continue  # it is asked again, and said, when it is to be removed
        namespaces |= ownership.namespaces(one.body)
        if release := ownership.release(one.body):
            releases[release] = None
    return Claim(frozenset(namespaces), tuple(releases))


def still_controlled(api: Api, namespace: str) -> bool:
    """Whether there is a controller that would make again what is removed. Raises ApiError."""
    found = api.get(kinds.DEPLOYMENTS.place(namespace, ownership.CONTROLLER), form="metadata")
    return found is not None and not found["metadata"].get("deletionTimestamp")
