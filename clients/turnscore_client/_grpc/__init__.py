"""The gRPC doors (extra `grpc`): nothing outside of this folder but the mock imports grpc."""
