"""Time of a review at koord-manager's webhooks, over TLS from another process: `python -m bench.webhooks`.

Clients keep their connections and wait for each answer, as the API server does. The view has as many profiles, quotas
and namespaces as a large cluster; the pod is the Spark executor of the published walk with its usual environment.
Printed are medians over rounds of each round's p50, p90 and p99, in milliseconds.
"""

import http.client
import json
import ssl
import statistics
import subprocess
import sys
import threading
import time
from typing import Any

import click
import msgspec

from api.crds import ClusterColocationProfile
from controllers.webhooks import certificates
from controllers.webhooks.routes import Reply, reply
from controllers.webhooks.rules.quota_object import Quota
from controllers.webhooks.server import webhook_listener
from controllers.webhooks.settings import WebhookSettings
from controllers.webhooks.view import ClusterView
from tests.controllers.webhooks import spark
from tests.controllers.webhooks.reviews import PRIORITY_CLASSES, profile

WARM_UP = 200


def serve(profiles: int, quotas: int) -> None:
    """Serve with a view of that size until standard input ends; prints port and certificate as JSON."""
    pair = certificates.issue(("localhost",), 1)
    context = certificates.server_context()
    certificates.load(context, pair)
    others = [
        profile(f"team-{number}", selector={"matchLabels": {"team": str(number)}}, qosClass="LS")
        for number in range(profiles)
    ]
    view = ClusterView(
        profiles=[*others, msgspec.convert(spark.PROFILE, ClusterColocationProfile)],
        priority_classes=PRIORITY_CLASSES,
        quotas={f"q{number}": Quota(f"q{number}", namespaces=(f"n{number}",)) for number in range(quotas)},
        namespace_labels=lambda _: spark.NAMESPACE["metadata"]["labels"],
    )

    def answer(path: str, body: bytes) -> Reply:
        return reply(path, body, lambda: view, frozenset())

    server = webhook_listener(WebhookSettings(address="127.0.0.1", port=0), context, answer)
    server.start()
    print(json.dumps({"port": server.port, "certificate": pair.certificate}), flush=True)
    sys.stdin.read()
    server.stop()


def review(path: str, pod: dict[str, Any]) -> bytes:
    """Return a review of the pod's creation."""
    request = {
        "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
        "operation": "CREATE",
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "namespace": "spark-job",
        "name": path,
        "userInfo": {"username": "system:serviceaccount:spark-job:spark", "groups": ["system:authenticated"]},
        "object": pod,
    }
    return json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}).encode()


def executor() -> dict[str, Any]:
    """Return an executor with forty variables and ten volumes."""
    pod = spark.spark_pod("executor", "1", "1408Mi")
    container = pod["spec"]["containers"][0]
    container["env"] = [{"name": f"SPARK_{number}", "value": "x" * 60} for number in range(40)]
    container["volumeMounts"] = [{"name": f"v{number}", "mountPath": f"/v{number}"} for number in range(10)]
    pod["spec"]["volumes"] = [{"name": f"v{number}", "emptyDir": {}} for number in range(10)]
    return pod


def ask(port: int, context: ssl.SSLContext, path: str, body: bytes, count: int, times: list[float]) -> None:
    """Ask `count` times over one connection, and append the seconds of each."""
    connection = http.client.HTTPSConnection("localhost", port, context=context, timeout=30)
    for number in range(WARM_UP + count):
        started = time.perf_counter()
        connection.request("POST", path, body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        answer.read()
        if answer.status != 200:
            raise click.ClickException(f"{path}: HTTP {answer.status}")
        if number >= WARM_UP:
            times.append(time.perf_counter() - started)
    connection.close()


def measured(port: int, context: ssl.SSLContext, path: str, clients: int, count: int) -> list[float]:
    """Return all times of one round, sorted."""
    body, times = review(path, executor()), []  # type: bytes, list[float]
    threads = [
        threading.Thread(target=ask, args=(port, context, path, body, count // clients, times)) for _ in range(clients)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sorted(times)


@click.command(help=__doc__)
@click.option("--rounds", default=5, show_default=True)
@click.option("--count", default=2000, show_default=True, help="Reviews in a round.")
@click.option("--clients", default=[1, 4], multiple=True, show_default=True, help="Connections at once.")
@click.option("--profiles", default=50, show_default=True)
@click.option("--quotas", default=1000, show_default=True)
def main(rounds: int, count: int, clients: tuple[int, ...], profiles: int, quotas: int) -> None:
    """Measure and print a line for each path and number of clients."""
    command = [sys.executable, "-c", f"from bench.webhooks import serve; serve({profiles}, {quotas})"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        found = json.loads(child.stdout.readline())
        context = ssl.create_default_context(cadata=found["certificate"])
        for path in ("/mutate-pod", "/validate-pod"):
            for number in clients:
                results = [measured(found["port"], context, path, number, count) for _ in range(rounds)]
                p50, p90, p99 = (
                    1e3 * statistics.median(times[int(len(times) * share)] for times in results)
                    for share in (0.5, 0.9, 0.99)
                )
                size = len(review(path, executor()))
                print(f"{path:15} {number} clients  {size} bytes  p50 {p50:.2f} ms  p90 {p90:.2f} ms  p99 {p99:.2f} ms")
        child.communicate("")


if __name__ == "__main__":
    main()
