"""Compiled loops of the losses: value and gradient in one pass, on the CPU.

``form``      what a loop is to its loss, how autograd uses it, access to tensors
``entries``   one loop for all losses of single entries, and the scalar functions that it takes
``pairs``     the label pair regularizer, alone and together with BCE or SPA
``two_way``   the two-way loss
"""
