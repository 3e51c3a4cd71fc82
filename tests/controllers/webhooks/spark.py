"""The published walk-through of co-located Spark as objects: profile, namespace, and pods of its operator."""

from typing import Any

import yaml

PROFILE = yaml.safe_load(
    """
apiVersion: config.koordinator.sh/v1alpha1
kind: ClusterColocationProfile
metadata:
  name: colocation-profile-example
spec:
  namespaceSelector:
    matchLabels:
      koordinator.sh/enable-colocation: "true"
  selector:
    matchLabels:
      sparkoperator.k8s.io/launched-by-spark-operator: "true"
  qosClass: BE
  priorityClassName: koord-batch
  koordinatorPriority: 1000
  schedulerName: koord-scheduler
  labels:
    koordinator.sh/mutated: "true"
  annotations:
    koordinator.sh/intercepted: "true"
  patch:
    spec:
      terminationGracePeriodSeconds: 30
"""
)
NAMESPACE = {"metadata": {"name": "spark-job", "labels": {"koordinator.sh/enable-colocation": "true"}}}


def spark_pod(role: str, cpu: str, memory: str) -> dict[str, Any]:
    """Return a driver or an executor as the Spark operator submits it."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"spark-pi-{role}",
            "namespace": "spark-job",
            "labels": {
                "spark-app-name": "spark-pi",
                "spark-role": role,
                "spark-version": "3.2.1",
                "sparkoperator.k8s.io/app-name": "spark-pi",
                "sparkoperator.k8s.io/launched-by-spark-operator": "true",
                "sparkoperator.k8s.io/submission-id": "b7a2b4d1",
            },
        },
        "spec": {
            "serviceAccountName": "spark",
            "restartPolicy": "Never",
            "schedulerName": "default-scheduler",
            "terminationGracePeriodSeconds": 300,
            "priority": 0,
            "preemptionPolicy": "PreemptLowerPriority",
            "containers": [
                {
                    "name": f"spark-kubernetes-{role}",
                    "image": "apache/spark:3.2.1",
                    "args": [role],
                    "env": [{"name": "SPARK_USER", "value": "root"}],
                    "resources": {
                        "limits": {"cpu": cpu, "memory": memory},
                        "requests": {"cpu": cpu, "memory": memory},
                    },
                }
            ],
        },
    }
