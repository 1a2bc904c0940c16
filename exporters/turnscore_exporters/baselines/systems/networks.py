"""The networks and losses of RUBER, contextualised RUBER and Bi-RNN in torch. Reads no text."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_sequence

# Specified: RUBER (Tao et al. 2018, released code).
GRU_UNITS, HIDDEN_UNITS = 128, (256, 512, 128)
QUERY_WORDS, REPLY_WORDS = 20, 30
MARGIN = 0.5
# Specified: Ghazarian et al. 2020, one layer MLP with tanh, dropout 0.8.
BI_RNN_UNITS, BI_RNN_DROPOUT = 64, 0.8


class PairHead(nn.Module):
    """Scores two vectors by an MLP over [q, q M r, r], M learned."""

    def __init__(self, width: int, activation: type[nn.Module] = nn.Tanh, dropout: float = 0.0) -> None:
        super().__init__()
        self.quadratic = nn.Parameter(torch.empty(width, width))
        nn.init.xavier_uniform_(self.quadratic)
        layers: list[nn.Module] = []
        before = 2 * width + 1
        for units in HIDDEN_UNITS:
            layers += [nn.Linear(before, units), activation(), nn.Dropout(dropout)]
            before = units
        self.layers = nn.Sequential(*layers, nn.Linear(before, 1))

    def forward(self, query: Tensor, reply: Tensor) -> Tensor:
        """Logits [pairs] of two [pairs, width]."""
        product = ((query @ self.quadratic) * reply).sum(-1, keepdim=True)
        logits: Tensor = self.layers(torch.cat([query, product, reply], dim=-1)).squeeze(-1)
        return logits


class WordReader(nn.Module):
    """A bidirectional GRU over word vectors; padding is never read."""

    def __init__(self, width: int, units: int) -> None:
        super().__init__()
        self.gru = nn.GRU(width, units, batch_first=True, bidirectional=True)

    def forward(self, words: Tensor, lengths: Tensor) -> Tensor:
        """The last states of both directions [texts, 2 units] of [texts, words, width]."""
        packed = pack_padded_sequence(words, lengths, batch_first=True, enforce_sorted=False)
        _, states = self.gru(packed)
        return torch.cat([states[0], states[1]], dim=-1)


class RuberNetwork(nn.Module):
    """RUBER's unreferenced score: one GRU per side, and the head."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.query, self.reply = WordReader(width, GRU_UNITS), WordReader(width, GRU_UNITS)
        self.head = PairHead(2 * GRU_UNITS)

    def forward(self, query: "Texts", reply: "Texts") -> Tensor:
        """Scores [replies], 0 to 1; `reply` may hold several replies to each query, one round after another."""
        asked, answered = self.query(*query.parts()), self.reply(*reply.parts())
        found: Tensor = self.head(asked.repeat(len(answered) // len(asked), 1), answered).sigmoid()
        return found


class BiRnnNetwork(nn.Module):
    """The Bi-RNN engagement classifier: one GRU per side, tanh, two classes."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.query, self.reply = WordReader(width, BI_RNN_UNITS), WordReader(width, BI_RNN_UNITS)
        self.layers = nn.Sequential(
            nn.Linear(4 * BI_RNN_UNITS, BI_RNN_UNITS), nn.Tanh(), nn.Dropout(BI_RNN_DROPOUT), nn.Linear(BI_RNN_UNITS, 2)
        )

    def forward(self, query: "Texts", reply: "Texts") -> Tensor:
        """Logits [pairs, 2]."""
        logits: Tensor = self.layers(torch.cat([self.query(*query.parts()), self.reply(*reply.parts())], dim=-1))
        return logits


@dataclass(frozen=True)
class Texts:
    """Word vectors of some texts, padded, [texts, words, width], and each text's number of words."""

    words: Tensor
    lengths: Tensor

    @classmethod
    def of(cls, rows: Sequence[NDArray[np.float32]]) -> "Texts":
        """Pads the rows; a text without words becomes one word of zeros."""
        kept = [torch.from_numpy(row) if len(row) else torch.zeros(1, row.shape[1]) for row in rows]
        return cls(pad_sequence(kept, batch_first=True), torch.tensor([len(row) for row in kept]))

    def parts(self) -> tuple[Tensor, Tensor]:
        return self.words, self.lengths


def hinge_loss(fitting: Tensor, wrong: Tensor, margin: float = MARGIN) -> Tensor:
    """RUBER's ranking loss: the mean of max(0, margin - fitting + wrong)."""
    return (margin - fitting + wrong).clamp_min(0.0).mean()
