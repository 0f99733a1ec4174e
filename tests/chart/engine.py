"""Helm's own engine behind a pipe: each line of standard input is a request in JSON, each line of output its answer."""

import json
import sys

import helm_python as helm


class Engine:
    def __init__(self, chart):
        self.chart = chart
        self.clusters = {}

    def lint(self, values, kube_version):
        return helm.lint(self.chart, values, strict=True, namespace="transom-system", kube_version=kube_version)

    def render(self, values, name, namespace, is_upgrade=None):
        with helm.Chart.load(self.chart) as chart:
            return chart.render(values, name=name, namespace=namespace, is_upgrade=is_upgrade)

    def validate(self, values):
        with helm.Chart.load(self.chart) as chart:
            chart.validate_schema(values)

    def install(self, cluster, name, namespace, values, dry_run=None):
        release = self._cluster(cluster, namespace).install(
            self.chart, name, values, namespace=namespace, create_namespace=True, timeout=60, dry_run=dry_run
        )
        return release

    def upgrade(self, cluster, name, namespace, values):
        return self._cluster(cluster, namespace).upgrade(
            self.chart, name, values, namespace=namespace, timeout=60, reset_values=True
        )

    def rollback(self, cluster, name, namespace, version):
        self._cluster(cluster, namespace).rollback(name, version=version, timeout=60)

    def test(self, cluster, name, namespace):
        return self._cluster(cluster, namespace).test(name, timeout=60)

    def uninstall(self, cluster, name, namespace):
        return self._cluster(cluster, namespace).uninstall(name, timeout=60)

    def parse(self, kind, expression):
        """What --set and --set-json make of their argument."""
        return {"--set": helm.parse_set_string, "--set-json": helm.parse_set_json}[kind](expression)

    def show(self, what):
        return helm.show(self.chart, what)

    def _cluster(self, kubeconfig, namespace):
        key = (kubeconfig, namespace)
        if key not in self.clusters:
            self.clusters[key] = helm.Config(kubeconfig_path=kubeconfig, namespace=namespace)
        return self.clusters[key]


def main():
    engine = Engine(sys.argv[1])
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = {"ok": getattr(engine, request.pop("do"))(**request)}
        except helm.HelmError as error:
            answer = {"error": str(error)}
        print(json.dumps(answer), flush=True)


main()
