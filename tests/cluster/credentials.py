"""Who is who in one control plane: its CA, the pairs that it serves, the kubeconfigs of its users."""

import base64
import json
import ssl
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import ec

from tests.cluster.authority import Authority, Pair, issue, new_authority, private_pem

HOST = "127.0.0.1"
SERVER_NAMES = ("localhost", HOST, "kubernetes", "kubernetes.default", "kubernetes.default.svc", "10.0.0.1")


def write(state: Path, server: str) -> ssl.SSLContext:
    """Write the CA, every pair, the kubeconfigs; return the administrator's side of TLS."""
    authority = new_authority("drainproof test CA")
    (state / "ca.crt").write_bytes(authority.certificate_pem)
    (state / "service-account.key").write_bytes(private_pem(ec.generate_private_key(ec.SECP256R1())))
    # etcd too asks for certificates: a stranger's etcd that got the port first cannot be mistaken for ours,
    # and no other user of this machine can read it.
    _write_pair(state, "etcd", issue(authority, "etcd", hosts=[HOST]))
    _write_pair(state, "kube-apiserver", issue(authority, "kube-apiserver", hosts=SERVER_NAMES))
    admin = issue(authority, "drainproof-test-admin", organization="system:masters")
    _write_pair(state, "admin", admin)
    _write_kubeconfig(state / "admin.kubeconfig", server, authority, admin)
    manager = issue(authority, "system:kube-controller-manager")
    _write_kubeconfig(state / "kube-controller-manager.kubeconfig", server, authority, manager)
    context = ssl.create_default_context(cafile=str(state / "ca.crt"))
    context.load_cert_chain(state / "admin.crt", state / "admin.key")
    return context


def _write_pair(state: Path, name: str, pair: Pair) -> None:
    (state / f"{name}.crt").write_bytes(pair.certificate)
    (state / f"{name}.key").write_bytes(pair.key)


def _write_kubeconfig(path: Path, server: str, authority: Authority, user: Pair) -> None:
    """A kubeconfig that needs no other file; JSON, which is YAML too."""

    def encoded(pem: bytes) -> str:
        return base64.b64encode(pem).decode()

    cluster = {"server": server, "certificate-authority-data": encoded(authority.certificate_pem)}
    credentials = {"client-certificate-data": encoded(user.certificate), "client-key-data": encoded(user.key)}
    path.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "test",
                "clusters": [{"name": "test", "cluster": cluster}],
                "users": [{"name": "test", "user": credentials}],
                "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
            }
        ),
        encoding="utf-8",
    )
