"""Runs an audit's tasks on Spark."""

import contextlib
import os
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from pyspark import SparkConf, SparkContext

from spark.audit.java import java_home
from spark.audit.model import LeafResult, LeafTask, SliceResult, SliceTask
from spark.audit.tasks import Credentials, run_leaves, run_slices

TASKS_PER_CORE = 2
CHECKOUT = Path(__file__).resolve().parent.parent.parent

_QUIET = """rootLogger.level = error
logger.shell.name = org.apache.spark.api.python.PythonGatewayServer
logger.shell.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = spark: %m%n
"""

T = TypeVar("T")
R = TypeVar("R")


class SparkRunner:
    """Spreads tasks over a Spark context; neighbouring slices stay together."""

    def __init__(self, context: SparkContext, shown: Credentials) -> None:
        self._context = context
        self._shown = shown

    def slices(self, tasks: Sequence[SliceTask]) -> list[SliceResult]:
        return self._spread(tasks, partial(run_slices, self._shown))

    def leaves(self, tasks: Sequence[LeafTask]) -> list[LeafResult]:
        return self._spread(tasks, partial(run_leaves, self._shown))

    def _spread(self, tasks: Sequence[T], work: Callable[[Iterable[T]], Iterator[R]]) -> list[R]:
        partitions = max(1, min(len(tasks), self._context.defaultParallelism * TASKS_PER_CORE))
        return self._context.parallelize(tasks, partitions).mapPartitions(work).collect()


@contextlib.contextmanager
def spark_context(master: str) -> Iterator[SparkContext]:
    """A Spark context of our own, stopped at the end; raises JavaMissing. Nothing is written outside a temporary folder.

    `master` is what spark-submit was given, or "local[*]". The retries of a task are Spark's; it never runs one twice at once.
    """
    with tempfile.TemporaryDirectory(prefix="dittomq-audit-") as scratch:
        environment = os.environ  # noqa: TID251  # Spark's launcher and its workers are told so
        environment["JAVA_HOME"] = str(java_home(environment, Path(scratch) / "java"))
        logging = Path(scratch) / "log4j2.properties"
        logging.write_text(_QUIET, encoding="utf-8")
        conf = (
            SparkConf()
            .setAppName("dittomq audit")
            .setIfMissing("spark.master", master)
            .set("spark.ui.enabled", "false")
            .set("spark.speculation", "false")
            .set("spark.sql.shuffle.partitions", "2")
            .set("spark.sql.warehouse.dir", f"{scratch}/warehouse")
            .set("spark.ui.showConsoleProgress", "false")
            .set("spark.driver.extraJavaOptions", f"-Dlog4j2.configurationFile={logging.as_uri()}")
            .setIfMissing("spark.local.dir", scratch)
        )
        if conf.get("spark.master", master).startswith("local"):
            environment.setdefault("PYSPARK_PYTHON", sys.executable)
            conf.setExecutorEnv("PYTHONPATH", os.pathsep.join([str(CHECKOUT), *filter(None, sys.path)]))
            conf.set("spark.driver.host", "127.0.0.1").set("spark.driver.bindAddress", "127.0.0.1")
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas")  # which the audit does not use
            context = SparkContext(conf=conf)
        try:
            yield context
        finally:
            context.stop()
