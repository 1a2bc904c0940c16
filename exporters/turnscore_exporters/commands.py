"""The commands `turnscore train KIND`, `export KIND` and `calibrate`: a table of kinds, their options and their work.

What does the work, and torch with it, is imported when the command runs.
"""

from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any

import typer
from turnscore_assessment.command_line import command_of
from turnscore_models.bundle import Bundle
from turnscore_models.manifest import BundleError

from turnscore_exporters import options as of
from turnscore_exporters.errors import ExporterError

TRAIN: dict[str, tuple[type, str]] = {
    "engagement": (of.EngagementTrainOptions, "engagement.training:run_engagement_training"),
    "sentiment-stop": (of.SentimentTrainOptions, "sentiment.training:run_sentiment_training"),
    "quality": (of.QualityTrainOptions, "quality.training:run_quality_training"),
    "criterion": (of.CriterionTrainOptions, "criterion.training:train_criterion"),
    "dialogue-lm": (of.LanguageModelOptions, "fed.language_model:run_language_model_training"),
}
EXPORT: dict[str, tuple[type, str]] = {
    "engagement": (of.EngagementExportOptions, "engagement.model:export_engagement"),
    "sentiment-stop": (of.SentimentExportOptions, "sentiment.training:export_sentiment"),
    "quality": (of.QualityExportOptions, "quality.bundle:export_quality"),
    "reaction": (of.ReactionExportOptions, "quality.reaction:export_reaction"),
    "encoder": (of.TextEncoderExportOptions, "text_encoder:export_text_encoder"),
    "fed": (of.FedExportOptions, "fed.bundle:run_fed_export"),
    "relevance": (of.RelevanceExportOptions, "pair_models.bundles:export_relevance"),
    "usr": (of.UsrExportOptions, "pair_models.bundles:export_usr"),
    "combination": (of.CombinationOptions, "rebuild_bundle:write_combination"),
    "self-test": (of.SelfTestOptions, "rebuild_bundle:rebuild_self_test"),
    "percentiles": (of.PercentilesOptions, "rebuild_bundle:rebuild_percentiles"),
    "dequantize": (of.DequantizeOptions, "quality.dequantize:dequantize_quality"),
}


def build_command(options: type, work: str) -> Callable[..., None]:
    """The function that typer turns into a command: its parameters are the fields of the dataclass.

    `work` names what is called with the options, as `module:function` of this package. It gives the bundle that it
    wrote, lines to print, or None. An ExporterError or BundleError ends the command with its message.
    """

    def run(given: Any) -> None:
        module, _, function = work.partition(":")
        do = getattr(import_module(f"turnscore_exporters.{module}"), function)
        if threads := getattr(given, "threads", 0):
            import torch

            torch.set_num_threads(threads)
        for line in _lines_of(do(given)):
            typer.echo(line)

    return command_of(options, run, ExporterError, BundleError)


def _lines_of(made: Bundle | Iterable[str] | None) -> Iterable[str]:
    if isinstance(made, Bundle):
        yield from (f"{variant}: {spec.parity_measured}" for variant, spec in made.manifest.graphs.items())
        yield f"{made.manifest.reference} written to {made.folder}"
    else:
        yield from made or ()


def _build_app(kinds: dict[str, tuple[type, str]], said: str) -> typer.Typer:
    app = typer.Typer(no_args_is_help=True, add_completion=False, help=said)
    for kind, (options, work) in kinds.items():
        app.command(kind)(build_command(options, work))
    return app


train = _build_app(TRAIN, "Train the models that turnscore serves.")
export = _build_app(EXPORT, "Make bundles that turnscore serves.")
calibrate = build_command(of.CalibrateOptions, "calibration.job:run_calibration")
