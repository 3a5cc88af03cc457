"""One Spark for all tests of this folder."""

from collections.abc import Iterator

import pytest
from pyspark import SparkContext

from dittomq.security.tls import NO_CERTIFICATES
from spark.audit.session import SparkRunner, spark_context


@pytest.fixture(scope="session")
def context() -> Iterator[SparkContext]:
    with spark_context("local[2]") as running:
        yield running


@pytest.fixture(scope="session")
def runner(context: SparkContext) -> SparkRunner:
    return SparkRunner(context, NO_CERTIFICATES)
