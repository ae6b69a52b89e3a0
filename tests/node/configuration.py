"""The configuration files of containerd, CNI, the kubelet and kube-proxy for a node that leaves its host alone."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.cluster.flags import SERVICE_RANGE
from tests.node.accounts import NODE
from tests.node.image import PAUSE

SOCKET = "/run/containerd/containerd.sock"  # among the node's own mounts
# At the address of the node's own bridge.
SERVER_PORT = 6443
KUBELET_PORT = 10250
HEALTH_PORT = 10256
METRICS_PORT = 10249


@dataclass(frozen=True)
class Place:
    """Where one node keeps its files, and its part of the network: `pods` is the range of its Pods."""

    folder: Path
    bridge: str
    address: str
    pods: str
    plugins: Path

    @property
    def keys(self) -> Path:
        """The folder of tokens, certificates and kubeconfigs."""
        return self.folder / "keys"

    @property
    def settings(self) -> Path:
        """The folder of what this module writes."""
        return self.folder / "settings"


def write(place: Place) -> None:
    """Write containerd.toml, cni/ring.conflist, kubelet.json and kube-proxy.json into place.settings."""
    (place.settings / "containerd.toml").write_text(_containerd(place), encoding="utf-8")
    (place.settings / "cni").mkdir()
    _write(place.settings / "cni" / "ring.conflist", _cni(place))
    _write(place.settings / "kubelet.json", _kubelet(place))
    _write(place.settings / "kube-proxy.json", _kube_proxy(place))


def scheduler(place: Place) -> list[str]:
    """The command line of the scheduler, without a port."""
    return [f"--kubeconfig={place.keys / 'kube-scheduler.kubeconfig'}", "--leader-elect=false", "--secure-port=0"]


def kubelet(place: Place) -> list[str]:
    """The command line of the kubelet; the rest is in its file."""
    return [
        f"--config={place.settings / 'kubelet.json'}",
        f"--kubeconfig={place.keys / 'kubelet.kubeconfig'}",
        f"--hostname-override={NODE}",
        # A node may not have a loopback address.
        f"--node-ip={place.address}",
    ]


def _containerd(place: Place) -> str:
    """In TOML. What is not said is the default: its paths are the node's own, see namespace.sh."""
    images, runtime = "plugins.'io.containerd.cri.v1.images'", "plugins.'io.containerd.cri.v1.runtime'"
    return f"""
version = 3
[{images}.pinned_images]
sandbox = '{PAUSE}'
[{runtime}]
# Where CAP_SYS_RESOURCE is missing, as in many containers, no sandbox starts without it: runc may not lower the
# value, and its child dies with "can't get final child's PID from pipe: EOF".
restrict_oom_score_adj = true
# The profile that it would load stays in the kernel.
disable_apparmor = true
[plugins.'io.containerd.internal.v1.opt']
path = '{place.folder / "opt"}'
[{runtime}.containerd.runtimes.runc]
runtime_type = 'io.containerd.runc.v2'
[{runtime}.containerd.runtimes.runc.options]
SystemdCgroup = false
[{runtime}.cni]
bin_dirs = ['{place.plugins}']
conf_dir = '{place.settings / "cni"}'
"""


def _cni(place: Place) -> dict[str, Any]:
    ipam = {
        "type": "host-local",
        "ranges": [[{"subnet": place.pods, "gateway": place.address}]],
        # Not a default route: what a Pod sends stays on this machine.
        "routes": [{"dst": SERVICE_RANGE}],
    }
    # The plugin as a gateway would switch on forwarding for all of the host's interfaces.
    bridge = {"type": "bridge", "bridge": place.bridge, "isGateway": False, "ipMasq": False, "ipam": ipam}
    return {"cniVersion": "1.0.0", "name": "ring", "plugins": [bridge]}


def _kubelet(place: Place) -> dict[str, Any]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": place.address,
        "port": KUBELET_PORT,
        "healthzPort": 0,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(place.keys / "kubelet-ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": str(place.keys / "kubelet.crt"),
        "tlsPrivateKeyFile": str(place.keys / "kubelet.key"),
        "containerRuntimeEndpoint": f"unix://{SOCKET}",
        # A host may have cgroup v1, no systemd and swap, as containers and small machines do.
        "failCgroupV1": False,
        "cgroupDriver": "cgroupfs",
        "cgroupsPerQOS": False,
        "enforceNodeAllocatable": [],
        "failSwapOn": False,
        "localStorageCapacityIsolation": False,
        # A full disk of the host is no reason to evict; without any value the defaults would hold.
        "evictionHard": {"memory.available": "10Mi"},
        "imageGCHighThresholdPercent": 100,
        "makeIPTablesUtilChains": False,
        "oomScoreAdj": 0,
        "resolvConf": "",
        # Nobody answers names there, and says so at once.
        "clusterDNS": [place.address],
        "volumePluginDir": str(place.folder / "volume-plugins"),
    }


def _kube_proxy(place: Place) -> dict[str, Any]:
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "iptables",
        "clientConnection": {"kubeconfig": str(place.keys / "kube-proxy.kubeconfig")},
        "hostnameOverride": NODE,
        "bindAddress": place.address,
        "nodePortAddresses": [place.pods],
        "healthzBindAddress": f"{place.address}:{HEALTH_PORT}",
        "metricsBindAddress": f"{place.address}:{METRICS_PORT}",
        "detectLocalMode": "ClusterCIDR",
        "clusterCIDR": place.pods,
        # masqueradeAll: an answer between two Pods of one bridge would go past the host, which has to translate it.
        # localhostNodePorts: would let the host route loopback addresses.
        "iptables": {"masqueradeAll": True, "localhostNodePorts": False},
        # 0 leaves the host's own values.
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
        "oomScoreAdj": 0,
    }


def _write(path: Path, document: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(document), encoding="utf-8")
