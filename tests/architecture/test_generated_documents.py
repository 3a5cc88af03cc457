from tools import configdoc, logdoc, rpcdoc, statedoc


def test_the_page_of_all_rpcs_is_what_the_proto_files_say() -> None:
    assert rpcdoc.TARGET.read_text(encoding="utf-8") == rpcdoc.document(), "run `make docs`"


def test_the_page_of_all_settings_is_what_the_configuration_classes_say() -> None:
    assert configdoc.TARGET.read_text(encoding="utf-8") == configdoc.document(), "run `make docs`"


def test_replication_page_draws_the_tables_that_sessions_obey() -> None:
    assert statedoc.TARGET.read_text(encoding="utf-8") == statedoc.document(), "run `make docs`"


def test_page_of_log_events_is_what_the_code_logs() -> None:
    assert logdoc.TARGET.read_text(encoding="utf-8") == logdoc.document(), "run `make docs`"
