"""Finds what drainproof has in a cluster."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from webhook.controller.api import Api, ApiError, Thing
from webhook.uninstall import ownership
from webhook.uninstall.kinds import Kind


@dataclass(frozen=True, slots=True)
class Found:
    """An object of ours, or with `stays` one that only has a name of ours, and why it is not ours."""

    thing: Thing
    body: Mapping[str, Any]
    stays: str = ""

    @property
    def uid(self) -> str:
        """What tells it from another object of its name."""
        return str(self.body["metadata"]["uid"])


def survey(api: Api, kinds: Iterable[Kind], namespace: str, by_name: bool = False) -> Iterator[Found | ApiError]:
    """What there is of some kinds, in their order; what could not be asked is an error among it.

    It is found by its label, and by its name where something may have no label. With `by_name` only so, which needs no
    right to list.
    """
    for kind in kinds:
        try:
            yield from _labelled(api, kind, namespace, by_name)
        except ApiError as error:
            yield error


def _labelled(api: Api, kind: Kind, namespace: str, by_name: bool) -> Iterator[Found | ApiError]:
    listed = {} if by_name else _listed(api, kind, namespace)
    yield from (Found(kind.place(namespace, name), body) for name, body in listed.items())
    for name in kind.names:
        if name not in listed:
            yield from _named(api, kind, kind.place(namespace, name))


def _listed(api: Api, kind: Kind, namespace: str) -> dict[str, Mapping[str, Any]]:
    try:
        items = api.items(kind.place(namespace), ownership.SELECTOR, form="" if kind.whole else "metadata-list")
    except ApiError as error:
        if error.status == 404:  # the cluster does not know the kind
            return {}
        raise
    return {str(one["metadata"]["name"]): one for one in items}


def _named(api: Api, kind: Kind, thing: Thing) -> Iterator[Found | ApiError]:
    try:
        body = api.get(thing, form="" if kind.whole else "metadata")
    except ApiError as error:
        yield error
        return
    if body is not None:
        yield Found(thing, body, ownership.stranger(thing.resource, body))
