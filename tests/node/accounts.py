"""Who the node's components are to the API server, and what the API server and the kubelet show each other."""

import json
import secrets
from pathlib import Path

from tests.cluster.authority import Pair, issue, new_authority

NODE = "ring-0"
# Each component under the name that Kubernetes has roles for, so that RBAC is as in a real cluster.
USERS = {
    "kubelet": (f"system:node:{NODE}", "system:nodes"),
    "kube-proxy": ("system:kube-proxy", "system:authenticated"),
    "kube-scheduler": ("system:kube-scheduler", "system:authenticated"),
}


def write(keys: Path, address: str) -> list[str]:
    """Write the tokens and the pairs; return the flags with which the API server knows them.

    `address` is where the kubelet serves. The control plane keeps its own CA's key to itself, so the components
    of the node come with tokens, and the way to the kubelet has a CA of its own.
    """
    tokens = {component: secrets.token_hex() for component in USERS}
    rows = [f'{tokens[name]},{user},{user},"{group}"' for name, (user, group) in USERS.items()]
    (keys / "tokens.csv").write_text("\n".join([*rows, ""]), encoding="utf-8")
    for component, token in tokens.items():
        (keys / f"{component}.token").write_text(token, encoding="utf-8")
    authority = new_authority("drainproof test node CA")
    (keys / "kubelet-ca.crt").write_bytes(authority.certificate_pem)
    _write_pair(keys, "kubelet", issue(authority, NODE, hosts=[NODE, address]))
    _write_pair(keys, "kubelet-client", issue(authority, "kube-apiserver", organization="system:masters"))
    return [
        f"--token-auth-file={keys / 'tokens.csv'}",
        f"--kubelet-certificate-authority={keys / 'kubelet-ca.crt'}",
        f"--kubelet-client-certificate={keys / 'kubelet-client.crt'}",
        f"--kubelet-client-key={keys / 'kubelet-client.key'}",
        "--kubelet-preferred-address-types=InternalIP",
        # Whoever takes the taint from a ready node is a controller that these control planes go without.
        "--disable-admission-plugins=TaintNodesByCondition",
    ]


def write_kubeconfigs(keys: Path, server: str, ca: Path) -> None:
    """One kubeconfig for each of USERS, as keys/COMPONENT.kubeconfig; JSON, which is YAML too."""
    for component in USERS:
        (keys / f"{component}.kubeconfig").write_text(
            json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "current-context": "ring",
                    "clusters": [{"name": "ring", "cluster": {"server": server, "certificate-authority": str(ca)}}],
                    "users": [{"name": component, "user": {"tokenFile": str(keys / f"{component}.token")}}],
                    "contexts": [{"name": "ring", "context": {"cluster": "ring", "user": component}}],
                }
            ),
            encoding="utf-8",
        )


def _write_pair(keys: Path, name: str, pair: Pair) -> None:
    (keys / f"{name}.crt").write_bytes(pair.certificate)
    (keys / f"{name}.key").write_bytes(pair.key)
