"""Calls to the API server: objects in and out as dicts, and one error for all that can go wrong."""

import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import quote, urlencode

import urllib3
from kubernetes import client, config

from webhook import __version__

SECONDS: Final = 4.0  # for one call; less than a Lease has left when its holder stops to lead
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


class ApiError(Exception):
    """A call that was not done: `status` is the HTTP status, or 0 where there was no answer.

    `retry_after` is what the server asked to wait, in seconds.
    """

    def __init__(self, verb: str, thing: "Thing", status: int, text: str, retry_after: float = 0) -> None:
        self.verb, self.thing, self.status, self.retry_after = verb, thing, status, retry_after
        said = f"{status}: {text}" if status else text
        super().__init__(f"{verb} {thing}: {' '.join(said.split())}")


@dataclass(frozen=True, slots=True)
class Thing:
    """An object, or without a name all objects of a kind; `prefix` is /api/v1 or /apis/<group>/<version>.

    With a subresource, that part of the object.
    """

    prefix: str
    resource: str
    name: str = ""
    namespace: str = ""
    subresource: str = ""

    @property
    def path(self) -> str:
        """The path of its URL."""
        parts = ["namespaces", self.namespace] if self.namespace else []
        parts += filter(None, (self.resource, self.name, self.subresource))
        return "/".join([self.prefix, *(quote(part, safe="") for part in parts)])

    def __str__(self) -> str:
        return " ".join(filter(None, (self.kind, "/".join(filter(None, (self.namespace, self.name))))))

    @property
    def kind(self) -> str:
        """What a rule of RBAC calls it: `pods`, `pods/status`."""
        return "/".join(filter(None, (self.resource, self.subresource)))


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
        url = self._configuration.host + thing.path + (f"?{urlencode(query)}" if query else "")
        kind, accepted = _TYPES.get(form, "application/json"), _ACCEPTED.get(form, "application/json")
        content = None if body is None else json.dumps(body)
        timeout = urllib3.Timeout(total=seconds or self._seconds)
        try:
            headers = {"Accept": accepted, "Content-Type": kind, **self._headers()}
            answer = self._pool.request(
                method, url, body=content, headers=headers, retries=False, redirect=False, timeout=timeout
            )
        except (urllib3.exceptions.HTTPError, OSError, config.ConfigException) as error:
            raise ApiError(verb, thing, 0, f"the API server gave no answer: {error}") from error
        return _object(verb, thing, answer)

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


def _object(verb: str, thing: Thing, answer: urllib3.BaseHTTPResponse) -> dict[str, Any]:
    try:
        found = json.loads(answer.data)
    except ValueError:
        found = None
    if not 200 <= answer.status < 300:
        text = found.get("message") if isinstance(found, dict) else None
        wait = answer.headers.get("Retry-After", "")
        raise ApiError(verb, thing, answer.status, str(text or answer.reason), float(wait) if wait.isdigit() else 0)
    if not isinstance(found, dict):
        raise ApiError(verb, thing, answer.status, "the answer is no object")
    return cast(dict[str, Any], found)
