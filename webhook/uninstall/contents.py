"""What of others is in a namespace that is to be removed, of whatever kind."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from webhook.controller.api import Api, ApiError, Thing
from webhook.uninstall import ownership

# What a cluster, OpenShift or Istio puts into every namespace.
_EVERYWHERE: Final = frozenset(
    {
        ("serviceaccounts", "default"),
        ("configmaps", "kube-root-ca.crt"),
        ("configmaps", "openshift-service-ca.crt"),
        ("configmaps", "istio-ca-root-cert"),
    }
)
_PASSING: Final = frozenset({"events"})  # of both groups that have them
_COMPUTED: Final = frozenset({"metrics.k8s.io"})  # nothing is stored


def others(api: Api, namespace: str, gone: Mapping[Thing, str]) -> Iterator[Thing]:
    """The objects in a namespace that are neither of `gone` (with their uids) nor owned by it nor ours by label.

    Raises ApiError where a kind cannot be looked at: then nobody knows what would be lost.
    """
    uids = frozenset(gone.values())
    for place in _kinds(api, namespace):
        for body in _listed(api, place):
            thing = Thing(place.prefix, place.resource, str(body["metadata"]["name"]), namespace)
            if thing not in gone and not _is_excused(thing, body, uids):
                yield thing


def _listed(api: Api, place: Thing) -> list[dict[str, Any]]:
    try:
        return api.items(place, "", form="metadata-list")
    except ApiError as error:
        if error.status in (404, 405):  # a kind that is being taken away, or only looks as if it could be listed
            return []
        raise


def _kinds(api: Api, namespace: str) -> Iterator[Thing]:
    """Everything in a namespace that can be listed, each kind in the version that the API server prefers."""
    for root in (Thing("", "api"), Thing("", "apis")):
        for group in api.items(root, "", form="discovery"):
            name = group.get("metadata", {}).get("name", "")
            if name not in _COMPUTED:
                yield from _listable(root, name, group, namespace)


def _listable(root: Thing, group: str, body: Mapping[str, Any], namespace: str) -> Iterator[Thing]:
    seen: set[str] = set()
    for version in body.get("versions", []):
        prefix = "/".join(filter(None, (root.path, group, version["version"])))
        if version.get("freshness") == "Stale":
            raise ApiError("list", Thing(prefix, group), 503, "the server of this group does not answer")
        for one in version.get("resources", []):
            resource = str(one["resource"])
            if one["scope"] == "Namespaced" and "list" in one["verbs"] and resource not in seen | _PASSING:
                seen.add(resource)
                yield Thing(prefix, resource, namespace=namespace)


def _is_excused(thing: Thing, body: Mapping[str, Any], uids: Collection[str]) -> bool:
    owners = body["metadata"].get("ownerReferences") or []
    known = (thing.resource, thing.name) in _EVERYWHERE
    return known or ownership.is_labelled(body) or any(one.get("uid") in uids for one in owners)
