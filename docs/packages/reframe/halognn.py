"""ReFrame checks of halognn (https://reframe-hpc.readthedocs.io), for a centre's own suite.

    reframe -c docs/packages/reframe/halognn.py -r            # with halognn on PATH, or as a module
    reframe -C SITE.py -c docs/packages/reframe/halognn.py -r --performance-report

HalognnNumbers trains twice, with the cache and the preparation set otherwise, and wants one loss digest:
a run's numbers may not depend on them. HalognnEpoch trains a larger graph and tells seconds an epoch and
the parallel efficiency; give your partitions a reference once they have run it.
"""

import json
import os

import reframe as rfm
import reframe.utility.sanity as sn
from reframe.core.builtins import parameter, performance_function, run_after, run_before, \
    sanity_function, variable


class HalognnJob(rfm.RunOnlyRegressionTest):
    valid_systems = ["*"]
    valid_prog_environs = ["*"]
    executable = "halognn"
    vertices = variable(int, value=20000)
    epochs = variable(int, value=3)

    @run_after("init")
    def size(self):
        self.num_tasks = self.ranks

    @run_before("run")
    def prepare(self):
        n = self.num_tasks
        self.prerun_cmds = [
            f"halognn generate --kind sbm --vertices {self.vertices} --degree 15 --features 64 "
            "--classes 8 --seed 1 --out data",
            f"halognn partition --data data --parts {n} --method ldg --seed 1 --out parts",
            "cat >config.yaml <<END",
            "data: {parts: parts}",
            "model: {layers: 2, hidden: 64}",
            "sample: {fanouts: [10, 5], batch: 256}",
            f"train: {{epochs: {self.epochs}}}",
            "run: {dir: run}",
            "END",
        ]
        self.executable_opts = ["train", "--quiet", "--config", "config.yaml"]

    def summary(self, run="run"):
        with open(os.path.join(self.stagedir, run, "summary.json")) as f:
            return json.load(f)


@rfm.simple_test
class HalognnNumbers(HalognnJob):
    """Equal digests of two runs with other caches, depths and threads."""

    ranks = parameter([2, 4])

    @run_before("run")
    def again(self):
        again = " ".join(self.executable_opts)
        self.job.num_tasks = self.num_tasks  # which ReFrame sets later
        launch = self.job.launcher.run_command(self.job)
        self.postrun_cmds = [
            f"{launch} halognn {again} --set run.dir=again --set cache.policy=none "
            "--set pipeline.depth=0 --set compute.threads=1"]

    @sanity_function
    def same_digest(self):
        first, again = self.summary(), self.summary("again")
        return sn.all([
            sn.assert_eq(first["loss_digest"], again["loss_digest"], "the numbers depend on the cache"),
            sn.assert_eq(first["ranks"], self.num_tasks),
            sn.assert_gt(first["test_metric"], first["majority_accuracy"], "nothing was learnt"),
        ])


@rfm.simple_test
class HalognnEpoch(HalognnJob):
    """Seconds an epoch, and how much of the processors' time is work."""

    ranks = parameter([2])
    vertices = 100000
    epochs = 5

    @sanity_function
    def finished(self):
        run = self.summary()
        return sn.all([
            sn.assert_eq(run["epochs"], self.epochs),
            sn.assert_true(run["efficiency"]["parallel_efficiency"] is not None,
                           f"no efficiency: {run['efficiency'].get('no_value')}"),
        ])

    @performance_function("s")
    def epoch(self):
        return self.summary()["epoch_seconds"]

    @performance_function("%")
    def parallel_efficiency(self):
        return 100 * self.summary()["efficiency"]["parallel_efficiency"]
