"""Three labels, weights, and a model whose biases can be set."""

from types import SimpleNamespace

import torch

scores = torch.randn(50, 3, requires_grad=True)
targets = torch.bernoulli(torch.full((50, 3), 0.3))
row_weights = torch.ones(50)
label_rates = torch.tensor([0.1, 0.3, 0.5])
model = SimpleNamespace(head=torch.nn.Linear(4, 3))
