"""The wire over gRPC: the messages of turnscore.proto and their conversion. Needs grpcio: `./clients[grpc]`."""

from turnscore_wire.v1.conversion import to_fields, to_message

__all__ = ["to_fields", "to_message"]
