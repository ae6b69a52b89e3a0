"""The command line of each component; `state` is the folder with its keys, certificates and kubeconfigs."""

from pathlib import Path

from tests.cluster.credentials import HOST

SERVICE_RANGE = "10.0.0.0/24"  # its first address is in credentials.SERVER_NAMES
# Nobody keeps up a node's lease here: the lifecycle controller would taint every Node that a test makes.
# The rest of the list only costs start-up time: no test has volumes or clouds.
CONTROLLERS = (
    "*",
    "-node-lifecycle-controller",
    "-node-ipam-controller",
    "-persistentvolume-binder-controller",
    "-persistentvolume-attach-detach-controller",
    "-persistentvolume-expander-controller",
)


def etcd(state: Path, port: int) -> list[str]:
    """A store with the single client port `port` that forgets its data with `state`."""
    url = f"https://{HOST}:{port}"
    return [
        f"--data-dir={state / 'etcd'}",
        "--unsafe-no-fsync",
        f"--listen-client-urls={url}",
        f"--advertise-client-urls={url}",
        # The only member never calls a peer, so any port does.
        f"--listen-peer-urls=http://{HOST}:0",
        f"--cert-file={state / 'etcd.crt'}",
        f"--key-file={state / 'etcd.key'}",
        f"--trusted-ca-file={state / 'ca.crt'}",
        "--client-cert-auth",
    ]


def apiserver(state: Path, etcd_port: int, port: int) -> list[str]:
    """A server on `port` with RBAC, Node authorization and signed service account tokens."""
    return [
        f"--etcd-servers=https://{HOST}:{etcd_port}",
        f"--etcd-cafile={state / 'ca.crt'}",
        f"--etcd-certfile={state / 'kube-apiserver.crt'}",
        f"--etcd-keyfile={state / 'kube-apiserver.key'}",
        f"--bind-address={HOST}",
        f"--secure-port={port}",
        # Without an address the server wants a default route, which a machine off the network lacks; and the
        # endpoints of the Service `kubernetes` may not be loopback addresses.
        f"--advertise-address={HOST}",
        "--endpoint-reconciler-type=none",
        f"--service-cluster-ip-range={SERVICE_RANGE}",
        "--allow-privileged",
        f"--tls-cert-file={state / 'kube-apiserver.crt'}",
        f"--tls-private-key-file={state / 'kube-apiserver.key'}",
        f"--client-ca-file={state / 'ca.crt'}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={state / 'service-account.key'}",
        f"--service-account-signing-key-file={state / 'service-account.key'}",
    ]


def controller_manager(state: Path) -> list[str]:
    """The controllers of CONTROLLERS, without a port."""
    return [
        f"--kubeconfig={state / 'kube-controller-manager.kubeconfig'}",
        f"--controllers={','.join(CONTROLLERS)}",
        # As in a real cluster, admission sees system:serviceaccount:kube-system:job-controller and the like.
        "--use-service-account-credentials",
        f"--service-account-private-key-file={state / 'service-account.key'}",
        f"--root-ca-file={state / 'ca.crt'}",
        "--leader-elect=false",
        "--secure-port=0",
        "--kube-api-qps=200",
        "--kube-api-burst=400",
    ]
