"""What a loss declares is what callers use; a user's own loss works, or says what it lacks."""

from __future__ import annotations

import inspect

import pytest
import torch
from loss_instances import LOSSES, example

import credibly as cr
from credibly import losses as cl

CLASSES = sorted({type(loss) for loss in LOSSES}, key=lambda kind: kind.__name__)
each_class = pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)


@each_class
def test_every_loss_takes_a_reduction(kind):
    assert "reduction" in inspect.signature(kind).parameters


@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_the_text_of_a_loss_names_its_arguments(loss):
    for name in loss.arguments():
        assert f"{name}=" in str(loss) or getattr(loss, name) is None


@pytest.mark.parametrize("family", [cl.BinaryLoss, cl.RowLoss, cl.BatchLoss])
def test_a_loss_that_lacks_a_method_is_told_which_and_shown_an_example(family):
    class Mine(family):
        pass

    with pytest.raises(cr.InputError) as error:
        Mine()
    message = str(error.value)
    for method in Mine.__abstractmethods__:
        assert f"`{method}`: Return" in message
    namespace = {"cr": cr, "torch": torch}
    exec(message.split(":\n", 1)[1], namespace)  # the example works as it is shown
    loss = namespace["Mine"]()
    scores = torch.randn(4, 3, requires_grad=True)
    loss(scores, torch.eye(4, 3)).backward()
    assert torch.isfinite(scores.grad).all()
    assert scores.grad.abs().sum() > 0
    assert loss.name == "mine"


def test_a_subclass_inherits_what_its_parent_declares():
    class Mine(cl.TwoWay):
        pass

    assert Mine().spans_processes
    assert cl.LabelPairs(cl.Quasibinary()).spans_processes
    assert cl.LabelPairs(cl.Quasibinary()).has_state
    assert not cl.SPA().spans_processes


def test_a_subclass_with_another_formula_does_not_get_the_fused_one():
    class Doubled(cl.SPA):
        def positive(self, scores):
            return 2 * super().positive(scores)

    scores, targets = example(cl.SPA())
    loss = Doubled()
    assert loss(scores, targets).item() == pytest.approx(loss.values(scores, targets).mean().item())
    assert loss(scores, targets) > cl.SPA()(scores, targets)
    pairs = cl.LabelPairs(loss)
    assert pairs(scores, targets).item() == pytest.approx(
        pairs.values(scores, targets).mean().item()
    )


def test_state_is_fitted_through_the_wrapper():
    scores, targets = example(cl.Quasibinary())
    alone, wrapped = cl.Quasibinary(), cl.LabelPairs(cl.Quasibinary())
    alone.fit_state([(scores, targets)])
    wrapped.fit_state([(scores, targets)])
    assert wrapped.state_summary() == alone.state_summary()
    assert cl.SPA().fit_state([(scores, targets)]).state_summary() == {}


def test_published_log_odds_are_the_scores_where_the_print_has_a_sigmoid():
    scores = torch.linspace(-3, 3, 7)[None]
    for loss in (cl.Focal(), cl.Asymmetric()):
        assert torch.equal(loss.published_log_odds(scores), scores)
        assert not torch.allclose(loss.log_odds(scores), scores)
    assert torch.equal(cl.SPA().published_log_odds(scores), cl.SPA().log_odds(scores))


AVERAGE_K = ["avgk(average_size=2)", "an", "epr(average_size=2)", "topk(average_size=2)"]


@pytest.mark.parametrize("name", AVERAGE_K)
def test_the_average_k_paper_reads_every_head_by_a_softmax(name):
    inner, loss = cl.from_name(name), cl.from_name(f"{name}+published")
    scores, targets = example(inner, torch.float64)
    expected = torch.softmax(inner.ranking_scores(scores), 1)
    torch.testing.assert_close(loss.probabilities(scores), expected)
    assert loss.exclusive
    assert loss.has_link
    torch.manual_seed(0)
    value = inner(scores, targets)
    torch.manual_seed(0)
    assert loss(scores, targets).item() == value.item()
    known = torch.tensor([True, True, False, True, True]).expand(6, 5)
    among = torch.softmax(inner.ranking_scores(scores)[:, known[0]], 1)
    found = torch.sigmoid(loss.known_log_odds(scores, known))[:, known[0]]
    torch.testing.assert_close(found, among)


def test_a_loss_whose_paper_prints_its_link_stays_as_it_is():
    scores = torch.linspace(-3, 3, 7)[None]
    loss = cl.Published(cl.SPA())
    assert torch.equal(loss.log_odds(scores), cl.SPA().log_odds(scores))
    assert loss.properness == "strict"
    assert cl.Published(cl.Asymmetric()).properness == "none"


@pytest.mark.parametrize("inner", [cl.Focal(), cl.Asymmetric()], ids=str)
def test_pairs_as_published_compare_the_scores(inner):
    scores, targets = example(inner, torch.float64)
    published = cl.LabelPairs(inner, weight=0.7, on="published")
    pairs = cl.LabelPairs(cl.BCE(), weight=0.7)(scores, targets) - cl.BCE()(scores, targets)
    expected = inner(scores, targets) + pairs
    assert published(scores, targets).item() == pytest.approx(expected.item())
    on_link = cl.LabelPairs(inner, weight=0.7)(scores, targets)
    assert abs(on_link.item() - expected.item()) > 1e-3
    assert cl.from_name(f"{inner.name}+lpr(on=published)").on == "published"


def test_pairs_on_the_link_and_as_published_agree_for_spa():
    scores, targets = example(cl.SPA(), torch.float64)
    one, other = (cl.LabelPairs(cl.SPA(), on=on)(scores, targets) for on in ("link", "published"))
    assert one.item() == pytest.approx(other.item(), rel=1e-12)


def test_pairs_of_exclusive_labels_are_not_proper():
    assert cl.LabelPairs(cl.Softmax()).properness == "none"
    assert cl.audit(cl.LabelPairs(cl.Softmax())).properness == "none"


def test_a_wrapped_loss_must_leave_the_reduction_to_the_wrapper():
    with pytest.raises(cr.InputError, match='must have reduction="mean" or "rows"'):
        cl.LabelPairs(cl.SPA(reduction="sum"))


def test_algorithm_one_as_printed_takes_a_softmax_of_the_set_head():
    loss = cl.from_name("avgk(head=ml-softmax)", average_size=2)
    scores, _ = example(loss, torch.float64)
    expected = torch.softmax(scores[:, :5], 1)
    torch.testing.assert_close(loss.probabilities(scores), expected)
    assert torch.equal(loss.ranking_scores(scores), scores[:, :5])
    sigmoid = cl.AverageK(2).probabilities(scores)
    # The order over all entries, which Algorithm 1 thresholds, is another one.
    assert not torch.equal(sigmoid.flatten().argsort(), expected.flatten().argsort())
    assert loss.properness == "none"
