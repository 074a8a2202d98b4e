"""Rates of labels in training and elsewhere."""

train_rates, new_rates = 0.2, 0.5
