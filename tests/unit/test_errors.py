from dittomq.errors import DittoError, StorageFailure, Unavailable, first_of

GONE = Unavailable("a/0", "it is gone")
FAILED = StorageFailure("sync", "commitlog", "EIO")


def test_of_several_failures_the_first_is_told() -> None:
    assert first_of(ExceptionGroup("", [GONE, Unavailable("b/0", "it is gone")])) is GONE


def test_a_failed_store_is_told_before_all_that_failed_with_it() -> None:
    group: BaseExceptionGroup[DittoError] = BaseExceptionGroup("", [GONE, BaseExceptionGroup[DittoError]("", [FAILED])])  # type: ignore[list-item]

    assert first_of(group) is FAILED
