"""Calls to the API server: objects in and out as dicts, and one error for all that can go wrong."""

import json
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import quote, urlencode

import urllib3
from kubernetes import client, config

from webhook import __version__
from webhook.controller.stream import Stream

SECONDS: Final = 4.0  # for one call; less than a Lease has left when its holder stops to lead
PAGE_SECONDS: Final = 30.0  # for a page of a list, for which a large cluster has to look at many objects
PAGE: Final = 100  # objects; Pods of 20 KB each are then a few MB
_TYPES: Final = {
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "apply": "application/apply-patch+yaml",  # JSON is YAML
}
_VERBS: Final = {"GET": "get", "PUT": "update", "PATCH": "patch"}


class ConnectionSettingsError(ValueError):
    """There is no usable way to reach an API server; the message says why."""


class ApiError(Exception):
    """A call that was not done: `status` is the HTTP status, or 0 where there was no answer.

    `retry_after` is what the server asked to wait, in seconds, and `reason` its one word for what is wrong.
    """

    def __init__(
        self, verb: str, thing: "Thing", status: int, text: str, retry_after: float = 0, reason: str = ""
    ) -> None:
        self.verb, self.thing, self.status, self.retry_after = verb, thing, status, retry_after
        self.reason = reason
        said = f"{status}: {text}" if status else text
        super().__init__(f"{verb} {thing}: {' '.join(said.split())}")


@dataclass(frozen=True, slots=True)
class Thing:
    """An object, or without a name all objects of a kind; `prefix` is /api/v1 or /apis/<group>/<version>."""

    prefix: str
    resource: str
    name: str = ""
    namespace: str = ""

    @property
    def path(self) -> str:
        """The path of its URL."""
        parts = ["namespaces", self.namespace] if self.namespace else []
        parts += [self.resource, *([self.name] if self.name else [])]
        return "/".join([self.prefix, *(quote(part, safe="") for part in parts)])

    def __str__(self) -> str:
        return " ".join(filter(None, (self.resource, "/".join(filter(None, (self.namespace, self.name))))))


class Api:
    """A connection to one API server, for any number of threads. Calls raise ApiError."""

    def __init__(self, configuration: client.Configuration) -> None:
        self._configuration = configuration
        self._pool: urllib3.PoolManager = client.ApiClient(configuration).rest_client.pool_manager
        self._tokens = threading.Lock()

    def get(self, thing: Thing) -> dict[str, Any] | None:
        """The object, or None where there is none."""
        try:
            return self._call("GET", "get", thing)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    def items(self, thing: Thing, selector: str) -> list[dict[str, Any]]:
        """The objects with the labels that `selector` asks for."""
        found = self._call("GET", "list", thing, query={"labelSelector": selector}).get("items")
        return found if isinstance(found, list) else []

    def pages(self, thing: Thing, selector: str = "") -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
        """The objects in pieces, so that never all of them are in memory, each with the metadata of the list."""
        query = {"labelSelector": selector, "limit": str(PAGE), "continue": ""}
        while True:
            asked = {name: value for name, value in query.items() if value}
            timeout = urllib3.Timeout(total=PAGE_SECONDS)
            found = _object("list", thing, self._asked("GET", "list", thing, None, "", asked, timeout))
            metadata, items = found.get("metadata"), found.get("items")
            metadata = metadata if isinstance(metadata, dict) else {}
            yield metadata, [one for one in items if isinstance(one, dict)] if isinstance(items, list) else []
            query["continue"] = str(metadata.get("continue") or "")
            if not query["continue"]:
                return

    def watch(self, thing: Thing, selector: str, version: int, seconds: int) -> Stream:
        """What happens to objects after a resource version, for `seconds`, with bookmarks in quiet times."""
        query = {"watch": "true", "allowWatchBookmarks": "true", "labelSelector": selector}
        query |= {"resourceVersion": str(version), "timeoutSeconds": str(seconds)}
        timeout = urllib3.Timeout(connect=SECONDS, read=seconds + SECONDS)
        answer = self._asked("GET", "watch", thing, None, "", query, timeout, preload_content=False)
        if answer.status == 200:
            return Stream(answer)
        try:
            _object("watch", thing, answer)
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise ApiError("watch", thing, answer.status, f"the answer broke off: {error}") from error
        finally:
            answer.close()
        raise ApiError("watch", thing, answer.status, "the answer is no stream")

    def post(self, thing: Thing, body: Mapping[str, Any]) -> dict[str, Any]:
        """Makes an object in the place, named by its body. Fails with reason AlreadyExists where it is there."""
        return self._call("POST", "create", thing, body)

    def put(self, thing: Thing, body: Mapping[str, Any]) -> dict[str, Any]:
        """Puts an object in the place of what is there; kinds that allow it are also made so."""
        return self._call("PUT", "update", thing, body)

    def merge(self, thing: Thing, body: Mapping[str, Any]) -> dict[str, Any]:
        """Changes the fields given. With metadata.resourceVersion it fails with 409 where that is not the newest."""
        return self._call("PATCH", "patch", thing, body, "merge")

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

    def _call(
        self,
        method: str,
        verb: str,
        thing: Thing,
        body: object = None,
        form: str = "",
        query: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        timeout = urllib3.Timeout(total=SECONDS)
        return _object(verb, thing, self._asked(method, verb, thing, body, form, query, timeout))

    def _asked(
        self,
        method: str,
        verb: str,
        thing: Thing,
        body: object,
        form: str,
        query: Mapping[str, str] | None,
        timeout: urllib3.Timeout,
        preload_content: bool = True,
    ) -> urllib3.BaseHTTPResponse:
        url = self._configuration.host + thing.path + (f"?{urlencode(query)}" if query else "")
        kind = _TYPES.get(form, "application/json")
        content = None if body is None else json.dumps(body)
        try:
            headers = {"Accept": "application/json", "Content-Type": kind, **self._headers()}
            return self._pool.request(
                method,
                url,
                body=content,
                headers=headers,
                retries=False,
                redirect=False,
                timeout=timeout,
                preload_content=preload_content,
            )
        except (urllib3.exceptions.HTTPError, OSError, config.ConfigException) as error:
            raise ApiError(verb, thing, 0, f"the API server gave no answer: {error}") from error

    def _headers(self) -> dict[str, str]:
        with self._tokens:  # the token is read anew from its file now and then
            settings: Any = self._configuration.auth_settings()
        shown = {one["key"]: str(one["value"]) for one in settings.values() if one["in"] == "header"}
        return {"User-Agent": f"drainproof-controller/{__version__}", **shown}


def connect(kubeconfig: Path | None) -> Api:
    """The API server of a kubeconfig, or the one of the cluster that we run in. Raises ConnectionSettingsError."""
    configuration = client.Configuration()
    loading: Any = config  # these functions have no types
    try:
        if kubeconfig:
            loading.load_kube_config(str(kubeconfig), client_configuration=configuration)
        else:
            loading.load_incluster_config(client_configuration=configuration)
        return Api(configuration)
    except Exception as error:  # the library raises what it likes for a file that it cannot read
        where = str(kubeconfig) if kubeconfig else "--kubeconfig is not given, and this is no Pod with an account"
        raise ConnectionSettingsError(f"{where}: {' '.join(str(error).split())}") from error


def _object(verb: str, thing: Thing, answer: urllib3.BaseHTTPResponse) -> dict[str, Any]:
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
