"""Each test gets a loss of its own: some keep a state."""

import copy

import pytest


@pytest.fixture
def loss(request):
    return copy.deepcopy(request.param)
