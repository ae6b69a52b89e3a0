"""The way to an API server that kubectl would take."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from webhook.controller import api
from webhook.controller.api import Api

SECONDS: Final = 30.0  # for one call: an administrator's may come from afar
_HOME: Final = "~/.kube/config"


def reached(kubeconfig: Path | None, context: str | None, environment: Mapping[str, str] = os.environ) -> Api:
    """The API server of a kubeconfig, of $KUBECONFIG, of ~/.kube/config, or else that of the Pod that we run in.

    Raises ConnectionSettingsError.
    """
    found = str(kubeconfig) if kubeconfig else _usual(environment)
    if context and not found:
        raise api.ConnectionSettingsError("--context is given, and there is no kubeconfig that could have it")
    return api.connect(found, context, agent="drainproof-uninstall", seconds=SECONDS)


def _usual(environment: Mapping[str, str]) -> str | None:
    """As kubectl 1.37 has it: of the files of $KUBECONFIG those that exist; without any, the account of the Pod."""
    paths = environment.get("KUBECONFIG") or _HOME
    return paths if any(Path(one).expanduser().exists() for one in paths.split(os.pathsep) if one) else None
