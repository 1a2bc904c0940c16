"""Streams report: whether many live conversations at once were answered, and left nothing behind. Pure."""

from turnscore_load.calls import percentile
from turnscore_load.check import Check, check_table
from turnscore_load.markdown import table
from turnscore_load.streams.run import StreamsRun

MOST_P99_MS = 1000.0
"""What a chatbot may wait for the scores of its turn before it is felt. Chosen."""
MOST_STREAM_KIB = 128.0
"""Memory of one open stream. Chosen, about twice what was measured (docs/loadtests.md)."""
MOST_GROWTH = 0.02
"""Memory is a high-water mark; as in the soak."""
_KIB, _MIB = 1024, 1024 * 1024


def stream_kib(run: StreamsRun) -> float:
    """Memory of the service for each open and silent stream, its share of a connection included."""
    return (run.silent.rss_bytes - run.rest.rss_bytes) / run.settings.streams / _KIB


def checks(run: StreamsRun) -> list[Check]:
    """Every claim; the run passes when all are kept."""
    wanted, talk, tally = run.settings.streams, run.talk, run.tally
    p99 = percentile(tally.took_ms, 99)
    left = wanted - talk.cut_streams
    ends, first, last = (run.closed, *run.rounds), run.rounds[0], run.rounds[-1]
    said = f"{tally.scored} of {tally.said} scored, {tally.heard} turns of users heard"
    problems = "".join(f"; {count} x {what}" for what, count in tally.problems.most_common(5))
    return [
        Check(
            f"{wanted} streams open at once",
            f"{run.silent.open_streams:.0f} silent, {talk.full.open_streams:.0f} talking",
            run.silent.open_streams == talk.full.open_streams == wanted,
        ),
        Check(
            "every system turn scored, every answer in order",
            said + problems,
            tally.scored == tally.said >= wanted and not problems,
        ),
        Check(
            f"p99 of the scores at most {MOST_P99_MS:.0f} ms",
            f"p50 {percentile(tally.took_ms, 50):.0f}, p95 {percentile(tally.took_ms, 95):.0f}, p99 {p99:.0f} ms",
            0 < p99 <= MOST_P99_MS,
        ),
        Check(
            f"an open stream takes at most {MOST_STREAM_KIB:.0f} KiB",
            f"{stream_kib(run):.1f} KiB silent",
            stream_kib(run) <= MOST_STREAM_KIB,
        ),
        Check(
            f"of {talk.cut_streams} streams cut in the middle of a turn nothing is left",
            f"{talk.cut.open_streams:.0f} of {left} open",
            talk.cut_streams > 0 and talk.cut.open_streams == left,
        ),
        Check("the others went on to their end", f"{talk.finished} of {left}", talk.finished == left),
        Check(
            "nothing is open or in work once all are gone",
            f"{sum(each.open_streams for each in ends):.0f} open, {sum(each.at_work for each in ends):.0f} in work",
            not any(each.open_streams or each.at_work for each in ends),
        ),
        Check(
            f"{len(run.rounds) - 1} more rounds leave at most {100 * MOST_GROWTH:.0f} % behind",
            f"{first.rss_bytes / _MIB:.1f} -> {last.rss_bytes / _MIB:.1f} MiB",
            last.rss_bytes <= (1 + MOST_GROWTH) * first.rss_bytes,
        ),
    ]


def report(run: StreamsRun, found: list[Check]) -> str:
    """The run as Markdown."""
    settings = run.settings
    moments = [
        ("at rest, after a few streams", run.rest),
        ("all streams open and silent", run.silent),
        ("all talking, before the cut", run.talk.full),
        ("after the cut", run.talk.cut),
        ("all closed", run.closed),
        *((f"round {number}: as many opened, and all cut", each) for number, each in enumerate(run.rounds, 1)),
    ]
    rows = []
    for name, moment in moments:
        more = (moment.rss_bytes - run.rest.rss_bytes) / _MIB
        rows.append([name, f"{moment.open_streams:.0f}", f"{moment.rss_bytes / _MIB:.1f}", f"{more:+.1f}"])
    return "\n\n".join(
        [
            f"{settings.streams} streams over {settings.connections} connections, {settings.seconds:g} s of talk at "
            f"{settings.pace:g} times the pace of people, {', '.join(settings.scorers)}; {run.processes} processes.",
            table(["moment", "streams open", "memory, MiB", "more than at rest"], rows, texts=1),
            check_table(found),
            f"CPUs used while they talked: {run.talk.service_cpus:.2f} by the service, "
            f"{run.talk.generator_cpus:.2f} by the generator.",
        ]
    )
