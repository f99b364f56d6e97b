"""The symbols of the methods' equations: one table, from which each card takes those that it uses."""

import re
from collections.abc import Iterable

_MEANINGS = (
    ("w", r"\bw\b", "the model on the server, or the one that a client is training"),
    ("w0", r"\bw0\b", "the model as the client received it"),
    ("g", r"\bg\b(?!\()", "the gradient of the current batch"),
    ("g(x)", r"\bg\(", "the gradient of the current batch at the model x"),
    ("g1", r"\bg1\b", "the gradient at w, before the perturbation"),
    ("loss", r"\bloss\b", "the mean loss of the current batch"),
    ("CE(f(x), y)", r"\bCE\(", "the cross entropy of the logits f(x) of an example x of class y"),
    ("delta_i", r"\bdelta_i\b", "client i's displacement, its trained model minus the received one"),
    ("w_j, delta_ij", r"\bw_j\b", "coordinate j of the model and of client i's displacement"),
    ("G", r"\bG\b", "the gradient of a layer's weights, outputs by inputs"),
    ("lr", r"\blr\b", "the learning rate of local training"),
    ("steps_i", r"\bsteps_i\b", "the local steps of client i in the round"),
    ("n_i", r"\bn_i\b", "the training examples of client i"),
    ("sum_i, mean_i", r"\b(sum|mean)_i\b", "over the clients of the round whose uploads were accepted"),
    ("m", r"\b1/m\b", "the number of those clients"),
    ("m", r"\bm <-", "the server's momentum, which points uphill as a gradient does"),
    ("N", r"\bN\b", "the number of all clients"),
    ("c, c_i", r"- c_i\b|\bc_i <-", "the control variates of the server and of client i, gradient-like"),
    ("h, h_i", r"- h_i\b|\bh_i <-", "the duals of the server and of client i, gradient-like"),
    ("offset", r"\boffset\b", "the perturbation of the model at which the gradient is taken"),
    (
        "A, B",
        r"\bA stays|\bB_i A_i|\bA_i <-|\(A, B_i\)|\bg_A\b",
        "the factors of an adapter, W + s B A; client i's A_i, B_i",
    ),
    ("p_i", r"\bp_i B_i|\bp_i dB_i", "n_i over the examples of all clients of the round"),
    ("U(x)", r"\bU\(", "x / ||x||, over the whole model; zero if x is zero"),
    ("H_r(x)", r"\bH_r\b", "x without the share r of its lowest frequencies, tensor by tensor"),
)
"""Symbol, the pattern by which equations have it, and its meaning."""


def explain_symbols(equations: str, arguments: Iterable[str] = ()) -> str:
    """The symbols that equations use, in a sentence; those of a method's own arguments are left to their table.

    Args:
        equations: the equations of a card.
        arguments: the names of the method's arguments.

    Example:
        >>> explain_symbols("g <- g + mu (w - w0)")[:44]
        '`w` the model on the server, or the one that'
    """
    own = set(arguments)
    used = [(name, text) for name, pattern, text in _MEANINGS if name not in own and re.search(pattern, equations)]
    return "; ".join(f"`{name}` {text}" for name, text in used) + "." if used else ""
