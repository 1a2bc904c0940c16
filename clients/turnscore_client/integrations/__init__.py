"""Integrations: hooks for the frameworks that chatbots run in. A module for each; none is imported here.

framework                 module                  what it gives
├── LiteLLM               litellm_logger          TurnScoreLogger, a CustomLogger; gates on the proxy
├── LangChain, LangGraph  langchain_middleware    TurnScoreMiddleware, which gates; TurnScoreCallback
├── LiveKit Agents        livekit_listener        listen(session)
├── Open WebUI            open_webui_filter       Filter
├── Pipecat               pipecat_listener        listen(assistant_aggregator)
├── Microsoft Agents SDK  agents_middleware       TurnScoreMiddleware, which gates
└── Rasa                  rasa_broker             TurnScoreBroker
"""

from turnscore_client._background import BackgroundOptions, GateOptions, TurnIds
from turnscore_client.integrations._gate import QualityGate

__all__ = ["BackgroundOptions", "GateOptions", "QualityGate", "TurnIds"]
