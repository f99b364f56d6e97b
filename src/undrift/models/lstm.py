"""The character LSTM of LEAF."""

from torch import Tensor, nn


class CharLSTM(nn.Module):
    """An embedding of 8, two LSTM layers of 256 and a linear head: the symbol that follows a piece of text.

    Args:
        symbols: size of the alphabet; a batch of texts is an integer tensor (batch, length) of numbers below it.
        classes: how many outputs; None takes one for each symbol.

    Note:
        PyTorch keeps two biases in each layer where LEAF's TensorFlow keeps one: 2,048 parameters more, which add
        nothing that one bias could not say.

    Example:
        >>> sum(p.numel() for p in CharLSTM(80).parameters())
        819920
    """

    def __init__(self, symbols: int = 80, classes: int | None = None) -> None:
        super().__init__()
        self.embedding = nn.Embedding(symbols, 8)
        self.lstm = nn.LSTM(8, 256, num_layers=2, batch_first=True)
        self.head = nn.Linear(256, symbols if classes is None else classes)

    def forward(self, text: Tensor) -> Tensor:
        """The logits after the last symbol of each text of a batch."""
        states, _ = self.lstm(self.embedding(text.long()))
        logits: Tensor = self.head(states[:, -1])
        return logits
