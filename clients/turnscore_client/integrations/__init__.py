"""Integrations: hooks for the frameworks that chatbots run in. A module for each; none is imported here.

framework                 module                  what scores, and what gates
├── LiteLLM               litellm_logger          TurnScoreLogger, a CustomLogger; gates on the proxy
├── LangChain, LangGraph  langchain_middleware    TurnScoreMiddleware, which gates; TurnScoreCallback
├── LiveKit Agents        livekit_listener        listen(session); GatedAgent, before speech; TurnScoreJudge
├── Open WebUI            open_webui_filter       Filter, which gates
├── Pipecat               pipecat_listener        listen(assistant_aggregator); GateProcessor, before speech
├── Microsoft Agents SDK  agents_middleware       TurnScoreMiddleware, which gates
└── Rasa                  rasa_broker             TurnScoreBroker; TurnScoreNLG, which gates
"""

from turnscore_client._background import BackgroundOptions, TurnIds
from turnscore_client.integrations._gate import GateEvent, QualityGate

__all__ = ["BackgroundOptions", "GateEvent", "QualityGate", "TurnIds"]
