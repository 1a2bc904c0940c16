"""The files of the engagement classifier's data, and how all of them are read."""

from dataclasses import dataclass
from pathlib import Path

from turnscore_assessment.data.dialogue_sets import is_sample

from turnscore_exporters.data.convai import ConvaiSplits, check_published_counts, read_convai, read_left_out_ids
from turnscore_exporters.data.pairs import EngagementPair, read_pair_csv


@dataclass(frozen=True, kw_only=True)
class EngagementPaths:
    """The files; `text` (dialogues without labels) may be missing where no recipe needs it."""

    convai: Path
    left_out: Path
    judged: Path
    transfer_train: Path
    transfer_validation: Path
    text: Path

    @classmethod
    def in_folder(cls, folder: Path) -> "EngagementPaths":
        """The files under their published names."""
        published = folder / "predictive_engagement"
        return cls(
            convai=folder / "convai2017.jsonl.gz",
            left_out=published / "50convs_AMT.txt",
            judged=published / "humanAMT_engscores_utt.csv",
            transfer_train=published / "DD_finetune_train.csv",
            transfer_validation=published / "DD_finetune_valid.csv",
            text=folder / "dialogue_text.jsonl.gz",
        )


@dataclass(frozen=True, kw_only=True)
class EngagementData:
    """Everything with a label. `judged` are the pairs that raters judged; no model may train on them."""

    convai: ConvaiSplits
    judged: list[EngagementPair]
    transfer_train: list[EngagementPair]
    transfer_validation: list[EngagementPair]

    @property
    def transfer(self) -> list[EngagementPair]:
        return self.transfer_train + self.transfer_validation


def read_engagement_data(paths: EngagementPaths, *, check_counts: bool = True) -> EngagementData:
    """Reads all files; with a check, raises PairCountError unless the pair counts are the published ones."""
    convai = read_convai(paths.convai, read_left_out_ids(paths.left_out))
    if check_counts and not is_sample(paths.convai.parent):
        check_published_counts(convai)
    return EngagementData(
        convai=convai,
        judged=read_pair_csv(paths.judged),
        transfer_train=read_pair_csv(paths.transfer_train),
        transfer_validation=read_pair_csv(paths.transfer_validation),
    )
