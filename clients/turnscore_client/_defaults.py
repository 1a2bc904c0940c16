"""Defaults: every number and name that the client uses by default, with its origin."""

from typing import Final

URL: Final = "http://localhost:3000"  # where `make serve` listens

GRPC_ADDRESS: Final = "localhost:50051"  # where it listens for gRPC

URL_VARIABLE: Final = "TURNSCORE_URL"
GRPC_ADDRESS_VARIABLE: Final = "TURNSCORE_GRPC_ADDRESS"
API_KEY_VARIABLE: Final = "TURNSCORE_API_KEY"

TIMEOUT_SECONDS: Final = 10.0  # for one call, retries included. The service's own default deadline.

# For one connection. One lost SYN is sent again after 1 s (RFC 6298, 2.1), a second one is not waited for.
CONNECT_TIMEOUT_SECONDS: Final = 2.0

# After so much silence on a gRPC connection with a call or conversation open the service is asked whether it is there.
# The service allows a question every 10 s (`TURNSCORE_GRPC__MIN_PING_SECONDS`).
KEEPALIVE_SECONDS: Final = 30.0

# A connection on which no answer comes in this time is given up. The default timeout of a call.
KEEPALIVE_TIMEOUT_SECONDS: Final = 10.0

# How long the end of a conversation waits for the service's own. A network's round trip, many times.
GOODBYE_SECONDS: Final = 1.0

# With the delays below they span at most 3.1 s, so a call survives a short restart of the service.
MAX_RETRIES: Final = 5

# Of one conversation. A rolling restart moves a conversation as often as there are replicas, mostly less.
MAX_REOPENINGS: Final = 3

# Before the first retry, doubled for each one after it. Several times the usual answer of a busy service.
FIRST_DELAY_SECONDS: Final = 0.1

LONGEST_DELAY_SECONDS: Final = 2.0  # more retries than the default go on at a pace a person still waits for

JITTER: Final = 0.5  # share of a delay left to chance, so that callers refused together do not come back together

HINT_JITTER: Final = 0.1  # share by which a delay the service asked for is stretched, never shortened

# The three are httpx's own, written down so that a release of httpx does not change them.
MAX_CONNECTIONS: Final = 100
MAX_IDLE_CONNECTIONS: Final = 20
IDLE_CONNECTION_SECONDS: Final = 5.0

# How much of a body that is not ours goes into the error. The title of a proxy's page fits.
BODY_START_CHARS: Final = 200

# Of one reply, unpacked. A dialogue of the 1,024 turns that a service takes by default, each with four scores of twenty
# details, has some 5 MB.
MAX_REPLY_BYTES: Final = 64 * 1024 * 1024

# Lines in flight for `turnscore score` at the most, and at its beginning. Fills a batch without crowding out live
# traffic.
CONCURRENCY: Final = 8

# The same where an engine scores in the command's own process: what is asked together shares batches.
ENGINE_CONCURRENCY: Final = 256

# How long `turnscore score` waits for a service that takes no line. The restart of a machine.
WAIT_SECONDS: Final = 600.0

# Between two questions whether a service is back. A person hardly notices it after a restart.
LONGEST_PAUSE_SECONDS: Final = 5.0

# Between two lines of progress where there is no terminal. A log of a night has some thousands.
PROGRESS_SECONDS: Final = 10.0

LINES_AHEAD: Final = 4  # lines held for each one in flight while an earlier, slower line is awaited

# Turns that wait to be scored behind a chatbot's back. A minute of some hundred conversations.
BACKGROUND_WAITING: Final = 256

# How long a chatbot's end waits for the last of them. Well within the 30 s that Kubernetes gives a process.
BACKGROUND_GOODBYE_SECONDS: Final = 5.0

# In which an integration scores. A service on the same machine answers 4 callers at a few hundred turns a second, and a
# chatbot's process keeps its cores.
BACKGROUND_THREADS: Final = 4

# Between a turn's handing over and its scoring. The reply leaves first, since one thread at a time has the interpreter;
# without it the hook's thread kept replies waiting for up to 1.5 ms (p99, 2 busy cores, 2026-11-22).
BACKGROUND_PAUSE_SECONDS: Final = 0.01

# How many of a dialogue's last messages an integration sends. More than any starter model reads.
BACKGROUND_MESSAGES: Final = 64

# How long a chatbot's end waits for turns handed over last. A person who stops a program waits so long.
BACKGROUND_EXIT_SECONDS: Final = 2.0

# For judging a reply, answering again and judging that. About what a person waits for without wondering.
GATE_DEADLINE_SECONDS: Final = 2.0

GATE_THREADS: Final = 8  # replies that one gate judges at once, and second answers for threads

# Second calls: a conversation that needs more is a person's, and 600 are what one in twenty of 12,000 replies asks for.
GATE_CALLS_PER_CONVERSATION: Final = 3
GATE_CALLS_PER_HOUR: Final = 600

CONVERSATIONS: Final = 4096  # that an integration remembers; the one that was silent longest is forgotten

# After so many failures in a row the gate lets all replies pass for so long, and asks again then.
GATE_FAILURES: Final = 3
GATE_OPEN_SECONDS: Final = 10.0
