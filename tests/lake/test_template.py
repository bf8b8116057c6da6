"""Values in names and paths: never two values in one place, never a character that means something there."""

from __future__ import annotations

import re
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headwater.lake.template import LONGEST, allowed, escaped, filled

# Close to each other, and to what they are escaped as.
_CLOSE = st.text(st.sampled_from("aAx_-.0415f\u00e4"), max_size=60)
_VALUES = st.one_of(st.text(), _CLOSE, _CLOSE.map(escaped), st.text(min_size=40, max_size=200))


@pytest.mark.parametrize(
    ("value", "name"),
    [
        ("acme", "acme"),
        ("t_1", "t_1"),
        ("42", "42"),
        ("a__b_", "a__b_"),
        ("", "_x"),
        (".", "_x2e"),
        ("..", "_x2e_x2e"),
        ("/", "_x2f"),
        ("Acme", "_x41cme"),
        ("a-b", "a_x2db"),
        ("_x", "_x5fx"),
        ("_x41", "_x5fx41"),
        ("'", "_x27"),
        ('"', "_x22"),
        ("%", "_x25"),
        ("{value}", "_x7bvalue_x7d"),
        ("\0", "_x00"),
        ("ä", "_xc3_xa4"),
        ("😀", "_xf0_x9f_x98_x80"),
        ("\ud800", "_xed_xa0_x80"),
        ("f1cae8f4-d86f-4965-94dc-5feb35ade4aa", "f1cae8f4_x2dd86f_x2d4965_x2d94dc_x2d5feb35ade4aa"),
        ("a" * 48, "a" * 48),
        ("a" * 49, "aaaaaaaaaaaaa_xxr6n6y2tc3uuoxu3ncitxivms3ztfrm3j"),
    ],
)
def test_a_value_in_a_name(value: str, name: str) -> None:
    assert escaped(value) == name


@given(_VALUES)
@example("x" * 10_000)
@example("😀" * 10_000)
@example("_x" * 24)
def test_a_name_is_short_and_of_plain_characters_alone(value: str) -> None:
    name = escaped(value)
    assert re.fullmatch("[a-z0-9_]+", name)
    assert len(name) <= LONGEST == 48


@given(_VALUES, _VALUES)
@example("a" * 49, "a" * 50)
@example("Acme", "acme")
@example("e\u0301", "\u00e9")
@example("\ufb01", "fi")
@example("ß", "ss")
def test_two_values_have_two_names_however_names_are_compared(one: str, other: str) -> None:
    folded = [unicodedata.normalize("NFKC", escaped(each)).casefold() for each in (one, other)]
    assert (folded[0] == folded[1]) == (one == other)


@given(_VALUES)
def test_a_name_of_full_length_can_be_read_back(value: str) -> None:
    name = escaped(value)
    if "_xx" in name:
        return  # a hash
    raw = re.sub(rb"_x([0-9a-f]{2})?", lambda match: bytes.fromhex((match[1] or b"").decode()), name.encode())
    assert raw.decode("utf-8", "surrogatepass") == value


def test_every_placeholder_of_a_template_is_filled_and_nothing_else() -> None:
    assert filled("s3://t/{value}/{value}/{other}", "A") == "s3://t/_x41/_x41/{other}"
    assert filled("{value}", "{value}") == "_x7bvalue_x7d"


@pytest.mark.parametrize(
    ("value", "pattern", "expected"),
    [
        ("acme", "acme", True),
        ("acme", "ACME", False),
        ("acme", "acm", False),
        ("", "*", True),
        ("anything", "*", True),
        ("t_1", "t_*", True),
        ("t_", "t_*", True),
        ("at_1", "t_*", False),
        ("a", "a*a", False),
        ("aa", "a*a", True),
        ("a.b.c", "a*b*c", True),
        ("acb", "a*b*c", False),
        ("abcbc", "a*bc", True),
        ("a\nb", "a*b", True),
        ("[x]", "[x]", True),
        ("x", "[x]", False),
        ("ab", "a?", False),
        ("a*b", "a*b", True),
    ],
)
def test_a_star_stands_for_any_text_and_no_other_character_does(value: str, pattern: str, expected: bool) -> None:
    assert allowed(value, ["nothing", pattern]) is expected


def test_nothing_is_allowed_by_an_empty_list() -> None:
    assert not allowed("", [])


def test_a_pattern_of_many_stars_refuses_a_long_value_at_once() -> None:
    assert not allowed("a" * 100_000, ["*".join("a" * 30) + "*b"])


@given(st.text("ab*", max_size=6), st.text("ab", max_size=8))
def test_patterns_mean_what_a_regular_expression_of_them_means(pattern: str, value: str) -> None:
    expected = re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), value) is not None
    assert allowed(value, [pattern]) is expected
