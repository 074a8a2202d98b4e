"""Properties of the query language: what is read is what was meant; errors point at the place."""

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from credibly import InputError
from credibly.retrieve import Query, parse, probability

# Everything a file may call a label, and some names that have caused trouble elsewhere.
names = st.one_of(
    st.text(max_size=8),
    st.sampled_from(["dog", "dining table", 'a"b', "it's; DROP TABLE x", "50%", "\\", "-", "+x"]),
)


def formulas_over(names, max_leaves):
    """Formulas: a name, or what joins it ("not", "and", "or") and its parts."""
    return st.recursive(
        names,
        lambda inner: st.one_of(
            st.tuples(st.just("not"), st.tuples(inner)),
            st.tuples(
                st.sampled_from(["and", "or"]),
                st.lists(inner, min_size=1, max_size=3).map(tuple),
            ),
        ),
        max_leaves=max_leaves,
    )


formulas = formulas_over(names, 8)


def quoted(name):
    return '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'


def spelt(formula):
    """A formula as a person might write it: every bracket there, needed or not."""
    if isinstance(formula, str):
        return quoted(formula)
    sign, parts = formula
    if sign == "not":
        return f"-({spelt(parts[0])})"
    return "(" + {"and": " & ", "or": "|"}[sign].join(map(spelt, parts)) + ")"


def value(formula, truth):
    if isinstance(formula, str):
        return truth[formula]
    sign, parts = formula
    held = [value(part, truth) for part in parts]
    return {"not": lambda one: not one[0], "and": all, "or": any}[sign](held)


def label_names(formula):
    if isinstance(formula, str):
        return {formula}
    return set().union(*map(label_names, formula[1]))


@settings(max_examples=300, deadline=None)
@given(formulas)
def test_canonical_text_parses_back_to_the_same_query(formula):
    query = parse(spelt(formula))
    assert parse(str(query)) == query
    assert str(parse(str(query))) == str(query)


@settings(max_examples=200, deadline=None)
@given(formulas, st.data())
def test_what_is_read_means_what_was_written(formula, data):
    query = parse(spelt(formula))
    truth = {name: data.draw(st.booleans()) for name in sorted(label_names(formula))}
    assert set(query.labels) == set(truth)
    assert probability(query, [list(truth.values())], list(truth)) == [value(formula, truth)]


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet='ab"\\()|&!+- ', max_size=12))
def test_any_text_is_a_query_or_a_clear_error(text):
    with contextlib.suppress(InputError):
        query = parse(text)
        assert parse(str(query)) == query


@pytest.mark.parametrize(
    ("text", "wanted", "unwanted"),
    [
        ("+fork +apple -knife", ("fork", "apple"), ("knife",)),
        ("fork apple", ("fork", "apple"), ()),
        ('-"dining table" fork', ("fork",), ("dining table",)),
        ("fork & !knife", ("fork",), ("knife",)),
        ("t-shirt -50%", ("t-shirt",), ("50%",)),
        ("!knife", (), ("knife",)),
        ("猫 -naïve", ("猫",), ("naïve",)),
        ("+dog +dog -dog", ("dog",), ("dog",)),
    ],
)
def test_a_conjunction_is_its_wanted_and_unwanted_labels(text, wanted, unwanted):
    assert parse(text) == Query(wanted, unwanted)


def test_or_binds_less_than_and():
    assert str(parse("a b | c")) == "a & b | c"
    assert str(parse("a & (b | c)")) == "a & (b | c)"
    assert str(parse("!(a | b)")) == "!(a | b)"


@pytest.mark.parametrize(
    ("text", "reason", "place"),
    [
        ('+fork "dining', "this quote is never closed", 6),
        ("(dog | cat", "this bracket is never closed", 0),
        ("dog | (cat & (bird)", "this bracket is never closed", 6),
        ("dog)", "no bracket is open here", 3),
        ("dog & ", "expected a label or '(' here; got the end", 6),
        ("dog | | cat", "expected a label or '(' here; got '|'", 6),
        ("()", "expected a label or '(' here; got ')'", 1),
        ("+", "expected a label or '(' here; got the end", 1),
        ("+dog -beech", "unknown label 'beech'. Did you mean 'beach'?", 6),
        ("dog AND beach", "unknown label 'AND'. Write '&' for it.", 4),
        ("(" * 101 + "dog" + ")" * 101, "nested 100 deep at most", 100),
    ],
)
def test_errors_point_at_the_place(text, reason, place):
    with pytest.raises(InputError) as caught:
        parse(text, labels=["dog", "cat", "beach", "fork", "bird"])
    message, shown, caret = str(caught.value).split("\n")
    assert reason in message
    assert caret == "    " + " " * place + "^"
    assert shown[4:].rstrip() == text.rstrip()


ACCENTED = ["café", "Straße", "dog", "Dog", "niño", "nino", "crème brûlée"]


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("cafe", "café"),
        ("CAFÉ", "café"),
        ("cafe\N{COMBINING ACUTE ACCENT}", "café"),
        ("strasse", "Straße"),
        ('"creme brulee"', "crème brûlée"),
        ("dog", "dog"),  # as written comes first
        ("Dog", "Dog"),
        ("nino", "nino"),
        ("niño", "niño"),
    ],
)
@pytest.mark.parametrize("form", ["{}", "+{}", "-{} +dog", "(Dog | !{}) & dog"])
def test_names_are_found_without_case_and_accents(typed, meant, form):
    quoted = '"' + meant + '"'
    assert parse(form.format(typed), ACCENTED) == parse(form.format(quoted), ACCENTED)


@pytest.mark.parametrize(
    ("text", "reason", "place"),
    [
        ("+cafe -DOG", "several labels match 'DOG'. Write 'dog' or 'Dog'.", 7),
        ("cafe & NINO", "several labels match 'NINO'. Write 'niño' or 'nino'.", 7),
        ("+cafe -caff", "unknown label 'caff'", 7),
    ],
)
def test_names_that_stay_unclear_are_pointed_at(text, reason, place):
    with pytest.raises(InputError) as caught:
        parse(text, ACCENTED)
    message, _, caret = str(caught.value).split("\n")
    assert reason in message
    assert caret == "    " + " " * place + "^"


@pytest.mark.parametrize("text", ["", "   ", "\n"])
def test_an_empty_query_is_refused(text):
    with pytest.raises(InputError, match="must name at least one label"):
        parse(text)


def test_a_query_without_labels_cannot_be_made():
    with pytest.raises(InputError, match="must name at least one label"):
        Query()


def test_a_made_query_is_checked_against_the_labels():
    with pytest.raises(InputError, match=r"unknown label 'dgo'.*Did you mean 'dog'"):
        Query(("dgo",)).check(["dog", "cat"])
