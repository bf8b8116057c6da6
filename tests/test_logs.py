"""What the logs say, and what they never say."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from urllib.parse import quote

import pytest

from headwater.logs import configure, redact


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:], root.level = handlers, level


def logged(format: str, secrets: tuple[str, ...] = (), **extra: object) -> str:
    stream = io.StringIO()
    configure("json" if format == "json" else "text", secrets, stream)
    logging.getLogger("headwater.capture").info("read %s", "postgresql://app:hunter2@db/shop", extra=extra)
    return stream.getvalue()


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("postgresql://app:hunter2@db/shop", "postgresql://app:***@db/shop"),
        ("postgresql://app:a/b?c#d@db/shop", "postgresql://app:***@db/shop"),
        ("postgresql://:hunter2@db/shop", "postgresql://:***@db/shop"),
        ("postgresql://app@db:5432/shop", "postgresql://app@db:5432/shop"),
        ("host=db password=hunter2 user=app", "host=db password=*** user=app"),
        ("host=db password='hunter 2' user=app", "host=db password=*** user=app"),
        (
            "postgresql://db/shop?user=app&password=hunter2&sslmode=require",
            "postgresql://db/shop?user=app&password=***&sslmode=require",
        ),
        ("PGPASSWORD=hunter2 psql", "PGPASSWORD=*** psql"),
        ("{'password': 'hunter2'}", "{'password': ***}"),
        ('{"sslpassword": "hunter2"}', '{"sslpassword": ***}'),
        ("password authentication failed for user", "password authentication failed for user"),
        ("see http://localhost:8080/status and a@b", "see http://localhost:8080/status and a@b"),
        ("no secret here", "no secret here"),
    ],
)
def test_passwords_in_urls_and_settings_are_struck_out_unasked(text: str, clean: str) -> None:
    assert redact(text) == clean


@pytest.mark.parametrize("secret", ["hunter2", "pa'ss\"w\\rd", "sp ace/sl@sh", "grün%20"])
def test_a_known_secret_is_struck_out_however_it_is_spelled(secret: str) -> None:
    for text in (secret, repr(secret), json.dumps(secret), quote(secret), quote(secret, safe=""), f"x{secret}x"):
        clean = redact(f"<{text}>", [secret])
        assert "***" in clean
        assert secret not in clean


def test_a_very_short_secret_does_not_eat_the_text() -> None:
    assert redact("a table at postgresql://a:a@a/a", ["a"]) == "a table at postgresql://a:***@a/a"


@pytest.mark.parametrize("format", ["text", "json"])
def test_no_password_gets_into_a_log(format: str) -> None:
    output = logged(format, ("s3cr3t-token",), token="s3cr3t-token", url="postgresql://a:hunter2@b/c")
    assert "hunter2" not in output
    assert "s3cr3t-token" not in output


@pytest.mark.parametrize("format", ["text", "json"])
def test_no_password_gets_into_a_traceback(format: str) -> None:
    stream = io.StringIO()
    configure("json" if format == "json" else "text", ["s3cr3t-token"], stream)
    try:
        raise ValueError("cannot use postgresql://app:hunter2@db/shop with s3cr3t-token")
    except ValueError:
        logging.getLogger("headwater").exception("failed")
    output = stream.getvalue()
    assert "ValueError" in output
    assert "Traceback" in output
    assert "hunter2" not in output
    assert "s3cr3t-token" not in output


def test_json_lines_hold_the_fields_and_the_extras() -> None:
    line = json.loads(logged("json", group="shop", rows=7, seconds=0.5, lsn=None))
    assert line.pop("ts").endswith("+00:00")
    assert line == {
        "level": "info",
        "logger": "headwater.capture",
        "message": "read postgresql://app:***@db/shop",
        "group": "shop",
        "rows": 7,
        "seconds": 0.5,
        "lsn": None,
    }


def test_an_extra_cannot_replace_a_field_of_ours() -> None:
    assert json.loads(logged("json", ts="never", level="none"))["level"] == "info"


def test_text_is_one_readable_line_with_the_extras_behind_it() -> None:
    line = logged("text", rows=7).rstrip("\n")
    assert "\n" not in line
    assert line.endswith("INFO    headwater.capture: read postgresql://app:***@db/shop rows=7")


def test_colours_are_for_terminals_only() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    for stream, coloured in ((io.StringIO(), False), (Terminal(), True)):
        configure("text", (), stream)
        logging.getLogger("headwater").warning("slow")
        assert ("\x1b[" in stream.getvalue()) is coloured
        assert "slow" in stream.getvalue()


def test_configuring_again_replaces_the_handler() -> None:
    first, second = io.StringIO(), io.StringIO()
    configure("text", (), first)
    configure("json", (), second)
    logging.getLogger("headwater").info("once")
    assert first.getvalue() == ""
    assert json.loads(second.getvalue())["message"] == "once"
