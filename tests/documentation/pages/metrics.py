"""Votes of several people per row."""

import torch

vote_shares = torch.softmax(scores, 1)  # noqa: F821
