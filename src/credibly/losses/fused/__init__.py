"""Compiled loops of the losses: value and gradient in one pass, on the CPU.

``form``      the relation of a loop to its loss, its use by autograd, access to tensors
``entries``   one loop for all losses of single entries, and their scalar functions
``pairs``     the label pair regularizer, alone and together with BCE or SPA
``two_way``   the two-way loss
"""
