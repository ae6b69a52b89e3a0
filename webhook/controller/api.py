"""Calls to the API server: objects in and out as dicts, and one error for all that can go wrong."""

import json
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import urlencode

import urllib3
from kubernetes import client, config

from webhook import __version__
from webhook.controller.thing import ApiError, Thing

__all__ = ["Api", "ApiError", "ConnectionSettingsError", "Thing", "connect", "read"]
SECONDS: Final = 4.0  # for one call; less than a Lease has left when its holder stops to lead
PAGE_SECONDS: Final = 30.0  # for a page of a list, for which a large cluster has to look at many objects
PAGE: Final = 100  # objects; Pods of 20 KB each are then a few MB
CONNECTIONS: Final = 16  # that are kept: more than there are threads of ours that call at once
_TYPES: Final = {
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "json": "application/json-patch+json",
    "apply": "application/apply-patch+yaml",  # JSON is YAML
}
# Forms of an answer. Servers that know none of these give the whole object.
_ACCEPTED: Final = {
    "metadata": "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json",
    "metadata-list": "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json",
    "discovery": "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",  # Kubernetes 1.30 or newer
}


class ConnectionSettingsError(ValueError):
    """There is no usable way to reach an API server; the message says why."""


class Api:
    """A connection to one API server, for any number of threads. Calls raise ApiError."""

    def __init__(
        self, configuration: client.Configuration, agent: str = "drainproof-controller", seconds: float = SECONDS
    ) -> None:
        self._configuration, self._agent, self._seconds = configuration, agent, seconds
        self._pool: urllib3.PoolManager = client.ApiClient(configuration).rest_client.pool_manager
        self._tokens = threading.Lock()

    @property
    def host(self) -> str:
        """The URL of the API server."""
        return str(self._configuration.host)

    def get(self, thing: Thing, form: str = "") -> dict[str, Any] | None:
        """The object, or None where there is none; with `form` metadata only that, without what a Secret holds."""
        try:
            return self._call("GET", "get", thing, form=form)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    def items(self, thing: Thing, selector: str, form: str = "") -> list[dict[str, Any]]:
        """The objects with the labels that `selector` asks for; with `form` metadata-list only their metadata."""
        query = {"labelSelector": selector} if selector else None
        found = self._call("GET", "list", thing, form=form, query=query).get("items")
        return found if isinstance(found, list) else []

    def pages(self, thing: Thing, selector: str = "") -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
        """The objects in pieces, so that never all of them are in memory, each with the metadata of the list."""
        more = ""
        while True:
            query = {"labelSelector": selector, "limit": str(PAGE), "continue": more}
            asked = {name: value for name, value in query.items() if value}
            found = self._call("GET", "list", thing, query=asked, seconds=PAGE_SECONDS)
            metadata, items = found.get("metadata"), found.get("items")
            metadata = metadata if isinstance(metadata, dict) else {}
            yield metadata, [one for one in items if isinstance(one, dict)] if isinstance(items, list) else []
            more = str(metadata.get("continue") or "")
            if not more:
                return

    def post(self, thing: Thing, body: Mapping[str, Any]) -> dict[str, Any]:
        """Makes an object in the place, named by its body. Fails with reason AlreadyExists where it is there."""
        return self._call("POST", "create", thing, body)

    def put(self, thing: Thing, body: Mapping[str, Any]) -> dict[str, Any]:
        """Puts an object in the place of what is there; kinds that allow it are also made so."""
        return self._call("PUT", "update", thing, body)

    def merge(self, thing: Thing, body: Mapping[str, Any]) -> dict[str, Any]:
        """Changes the fields given. With metadata.resourceVersion it fails with 409 where that is not the newest."""
        return self._call("PATCH", "patch", thing, body, "merge")

    def strategic(self, thing: Thing, body: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        """Changes the fields given, and of lists with a key the items given. `seconds` is how long it may take.

        With metadata.uid it fails where that is not the object's.
        """
        return self._call("PATCH", "patch", thing, body, "strategic", seconds=seconds)

    def patch(self, thing: Thing, steps: list[dict[str, Any]]) -> dict[str, Any]:
        """Changes an object by the steps of RFC 6902."""
        return self._call("PATCH", "patch", thing, steps, "json")

    def make(self, thing: Thing, body: Mapping[str, Any], manager: str) -> dict[str, Any]:
        """Makes an object by server-side apply; fails with 409 where another manager made it differently meanwhile.

        A POST would need leave to create anything of the kind, for it names no object. An apply asks for `create` with
        the name (Kubernetes 1.37, apiserver pkg/endpoints/handlers/patch.go), which RBAC can grant for that name alone.
        """
        return self._call("PATCH", "create", thing, body, "apply", {"fieldManager": manager})

    def apply(self, thing: Thing, body: Mapping[str, Any], manager: str) -> dict[str, Any]:
        """Makes an object, or the fields given, what `body` says, whoever changed them; other fields stay."""
        return self._call("PATCH", "patch", thing, body, "apply", {"fieldManager": manager, "force": "true"})

    def delete(self, thing: Thing, uid: str) -> dict[str, Any]:
        """Deletes an object, and in time what it owns; fails with 409 where another has its name by now.

        Gives what is answered: where that has a deletionTimestamp and finalizers, the object is still there.
        """
        kind = {"apiVersion": "v1", "kind": "DeleteOptions"}
        options = {**kind, "propagationPolicy": "Background", "preconditions": {"uid": uid}}
        return self._call("DELETE", "delete", thing, options)

    def _call(
        self,
        method: str,
        verb: str,
        thing: Thing,
        body: object = None,
        form: str = "",
        query: Mapping[str, str] | None = None,
        seconds: float = 0,
    ) -> dict[str, Any]:
        timeout = urllib3.Timeout(total=seconds or self._seconds)
        return read(verb, thing, self.ask(method, verb, thing, timeout, body, form, query))

    def ask(
        self,
        method: str,
        verb: str,
        thing: Thing,
        timeout: urllib3.Timeout,
        body: object = None,
        form: str = "",
        query: Mapping[str, str] | None = None,
        streams: bool = False,
    ) -> urllib3.BaseHTTPResponse:
        """The answer to one request, whatever its status; with `streams` before its content has come."""
        url = self._configuration.host + thing.path + (f"?{urlencode(query)}" if query else "")
        kind, accepted = _TYPES.get(form, "application/json"), _ACCEPTED.get(form, "application/json")
        content = None if body is None else json.dumps(body)
        headers = {"Accept": accepted, "Content-Type": kind}
        fixed: Any = {"retries": False, "redirect": False, "timeout": timeout, "preload_content": not streams}
        try:
            return self._pool.request(method, url, body=content, headers={**headers, **self._headers()}, **fixed)
        except (urllib3.exceptions.HTTPError, OSError, config.ConfigException) as error:
            raise ApiError(verb, thing, 0, f"the API server gave no answer: {error}") from error

    def _headers(self) -> dict[str, str]:
        with self._tokens:  # the token is read anew from its file now and then
            settings: Any = self._configuration.auth_settings()
        shown = {one["key"]: str(one["value"]) for one in settings.values() if one["in"] == "header"}
        return {"User-Agent": f"{self._agent}/{__version__}", **shown}


def connect(kubeconfig: Path | str | None, context: str | None = None, **more: Any) -> Api:
    """The API server of a kubeconfig, or the one of the cluster that we run in; `more` is what else Api takes.

    Of several files, with `:` between them as in KUBECONFIG, the first to say something counts. Without a `context`
    it is the current one. Raises ConnectionSettingsError.
    """
    configuration = client.Configuration()
    configuration.connection_pool_maxsize = CONNECTIONS
    loading: Any = config  # these functions have no types
    try:
        if kubeconfig:
            loading.load_kube_config(str(kubeconfig), context, client_configuration=configuration)
        else:
            loading.load_incluster_config(client_configuration=configuration)
        return Api(configuration, **more)
    except Exception as error:  # the library raises what it likes for a file that it cannot read
        where = str(kubeconfig) if kubeconfig else "--kubeconfig is not given, and this is no Pod with an account"
        raise ConnectionSettingsError(f"{where}: {' '.join(str(error).split())}") from error


def read(verb: str, thing: Thing, answer: urllib3.BaseHTTPResponse) -> dict[str, Any]:
    """The object in an answer. Raises ApiError."""
    try:
        found = json.loads(answer.data)
    except ValueError:
        found = None
    if not 200 <= answer.status < 300:
        told = found if isinstance(found, dict) else {}
        wait = answer.headers.get("Retry-After", "")
        text, seconds = str(told.get("message") or answer.reason), float(wait) if wait.isdigit() else 0
        raise ApiError(verb, thing, answer.status, text, seconds, str(told.get("reason") or ""))
    if not isinstance(found, dict):
        raise ApiError(verb, thing, answer.status, "the answer is no object")
    return cast(dict[str, Any], found)
