"""The character LSTM of LEAF."""

from torch import Tensor, nn


class CharLSTM(nn.Module):
    """An embedding of 8, two LSTM layers and a linear head: it predicts the next symbol of a text.

    Args:
        symbols: size of the alphabet; a batch of texts is an integer tensor (batch, length) with values below it.
        classes: how many outputs; None takes one for each symbol.
        hidden: units of each LSTM layer; LEAF has 256.

    Note:
        PyTorch has two biases in each layer, LEAF's TensorFlow one: 8 x hidden more parameters, which represent nothing
        that one bias could not.

    Example:
        >>> sum(p.numel() for p in CharLSTM(80).parameters())
        819920
    """

    def __init__(self, symbols: int = 80, classes: int | None = None, *, hidden: int = 256) -> None:
        super().__init__()
        self.embedding = nn.Embedding(symbols, 8)
        self.lstm = nn.LSTM(8, hidden, num_layers=2, batch_first=True)
        self.head = nn.Linear(hidden, symbols if classes is None else classes)

    def forward(self, text: Tensor) -> Tensor:
        """The logits after the last symbol of each text of a batch."""
        states, _ = self.lstm(self.embedding(text.long()))
        logits: Tensor = self.head(states[:, -1])
        return logits
