"""What Karpenter's Helm chart leaves in a cluster for others to find it by."""

from typing import Any

from tests.karpenter import accounts


def deployment(version: str) -> dict[str, Any]:
    """The Deployment kube-system/karpenter as Karpenter's chart makes it, but without replicas.

    The labels are those of karpenter-provider-aws charts/karpenter/templates/_helpers.tpl, and of the chart in
    Karpenter v1.15.0 kwok/charts: the version stands there without a `v`, the image's tag has one.
    """
    chosen = {"app.kubernetes.io/name": "karpenter", "app.kubernetes.io/instance": "karpenter"}
    labels = {
        **chosen,
        "helm.sh/chart": f"karpenter-{version}",
        "app.kubernetes.io/version": version,
        "app.kubernetes.io/managed-by": "Helm",
    }
    container = {"name": "controller", "image": f"registry.example/karpenter/controller:v{version}"}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "karpenter", "namespace": accounts.NAMESPACE, "labels": labels},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": chosen},
            "template": {
                "metadata": {"labels": chosen},
                "spec": {"serviceAccountName": accounts.KARPENTER, "containers": [container]},
            },
        },
    }
