"""What an integration holds: the watch, and a gate where one is asked for."""

from turnscore_client import _defaults
from turnscore_client._options import check_names
from turnscore_client.integrations._gate import Gate
from turnscore_client.integrations._options import GateOptions, ServiceOptions, WatchOptions
from turnscore_client.integrations._watch import TurnWatch


class Hook:
    """Made of an integration's options. Raises TypeError for an unknown one, ValueError for one without sense."""

    def __init__(self, given: GateOptions) -> None:
        check_names(given, GateOptions.__optional_keys__)
        watching: WatchOptions = {name: value for name, value in given.items() if name in _WATCH}  # type: ignore[assignment]
        service: ServiceOptions = {name: value for name, value in given.items() if name in _SERVICE}  # type: ignore[assignment]
        least = given.get("min_quality")
        self.gate = (
            None
            if least is None
            else Gate(
                least,
                scorer=given.get("gate_scorer", "quality"),
                budget_seconds=given.get("budget_seconds", _defaults.GATE_BUDGET_SECONDS),
                **service,
            )
        )
        self.watch = TurnWatch(**watching)


_WATCH = WatchOptions.__optional_keys__
_SERVICE = ServiceOptions.__optional_keys__
