"""Images, and a loss."""

import torch

import credibly as cr

data = cr.data.digits(40, seed=0)
inputs = torch.zeros(2, 1, 28, 28)
