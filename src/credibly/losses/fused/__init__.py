"""Compiled loops of the losses: value and gradient in one pass, on the CPU.

``form``      what a loop is to its loss, and how autograd uses it
``entries``   one loop for all losses of single entries, and the scalar functions that it takes
``pairs``     the label pair regularizer
``linked``    BCE or SPA together with label pairs
``two_way``   the two-way loss
``row_sums``  sums over the labels of a row, for the last layer in chunks
``memory``    access to tensors
"""
