"""Runs the gRPC server: its port, its certificates, health and reflection, from start to stop."""

import asyncio
import logging
import random
import ssl
from pathlib import Path

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from turnscore_service.api.grpc.endpoints import SERVICE, GrpcEndpoints
from turnscore_service.lifecycle.process import listens_elsewhere, why_not
from turnscore_service.lifecycle.runtime import Runtime
from turnscore_service.settings.api import GrpcSettings

_LOGGER = logging.getLogger("turnscore.grpc")
_Stamps = tuple[tuple[int, int, int], ...]


class UnusableCertificateError(Exception):
    """The files of the settings do not make a server's certificate; the message says which and why."""


def server_credentials(settings: GrpcSettings) -> grpc.ServerCredentials | None:
    """The credentials that the settings name, None for plain text. Raises UnusableCertificateError."""
    if settings.tls_cert_file is None or settings.tls_key_file is None:
        return None
    files = _CertificateFiles(settings.tls_cert_file, settings.tls_key_file, settings.tls_client_ca_file)
    return grpc.dynamic_ssl_server_credentials(
        files.read(),
        files.read_if_changed,  # type: ignore[arg-type]  # the stubs do not know of its None for "no change"
        require_client_authentication=settings.tls_client_ca_file is not None,
    )


class _CertificateFiles:
    def __init__(self, cert: Path, key: Path, client_ca: Path | None) -> None:
        self._cert = cert
        self._key = key
        self._client_ca = client_ca
        self._files = [each for each in (cert, key, client_ca) if each is not None]
        self._stamps: _Stamps | None = None

    def read(self) -> grpc.ServerCertificateConfiguration:
        """The contents of the files. Raises UnusableCertificateError."""
        try:
            self._stamps = self._look()
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(self._cert, self._key)
            if self._client_ca is not None:
                ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(self._client_ca)
            pair = (self._key.read_bytes(), self._cert.read_bytes())
            authorities = self._client_ca.read_bytes() if self._client_ca is not None else None
        except OSError as error:  # ssl.SSLError is one
            raise UnusableCertificateError(f"{', '.join(map(str, self._files))}: {error.strerror or error}") from None
        return grpc.ssl_server_certificate_configuration([pair], authorities)

    def read_if_changed(self) -> grpc.ServerCertificateConfiguration | None:
        """Called before each handshake; None for no change. Files that do not fit change nothing; reported once."""
        try:
            return None if self._look() == self._stamps else self.read()
        except (OSError, UnusableCertificateError) as error:
            _LOGGER.error("keeping the previous certificate: %s", error)
            return None

    def _look(self) -> _Stamps:
        return tuple((each.st_mtime_ns, each.st_size, each.st_ino) for each in map(Path.stat, self._files))


# Once or twice this long until a busy port is tried again, so that two services do not keep in step.
_RETRY_SECONDS = 1.0
_FAREWELL_SECONDS = 0.5  # how long callers get to close connections on which nothing but health is watched
_PART = "gRPC"
_COMPRESSION = {
    "none": grpc.Compression.NoCompression,
    "gzip": grpc.Compression.Gzip,
    "deflate": grpc.Compression.Deflate,
}


class GrpcServer:
    """One worker's gRPC server. Raises UnusableCertificateError when made; `start` and `stop` belong to one loop."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._settings = runtime.settings.grpc
        self._is_shared = runtime.settings.workers > 1
        self._credentials = server_credentials(self._settings)
        self._server: grpc.aio.Server | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._stopping: asyncio.Task[None] | None = None
        self.port: int | None = None  # the port it listens on, once it does

    async def start(self) -> None:
        """Listens, or says why it cannot, leaves the process not ready, and tries until it can."""
        if not self._settings.enabled:
            return
        self._endpoints = GrpcEndpoints(self._runtime)
        self._health = health.aio.HealthServicer()
        self._health_changed = asyncio.Event()
        loop = asyncio.get_running_loop()
        self._runtime.health.watch(lambda: loop.call_soon_threadsafe(self._health_changed.set))
        self._tasks.append(asyncio.create_task(self._follow_health()))
        reason = await self._listen()
        if reason is not None:
            self._refuse(reason)
            self._tasks.append(asyncio.create_task(self._listen_when_free()))

    async def stop(self) -> None:
        """Takes no more calls, ends conversations; returns when all is answered, or `shutdown_seconds` are over."""
        if self._stopping is None:
            self._stopping = asyncio.create_task(self._stop())
        await asyncio.shield(self._stopping)

    async def _stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._server is None:
            return
        await self._health.enter_graceful_shutdown()
        grace = asyncio.create_task(self._server.stop(self._runtime.settings.shutdown_seconds))
        idle = asyncio.create_task(self._endpoints.in_flight.wait_until_none())
        await self._runtime.end_conversations()
        await asyncio.wait((grace, idle), return_when=asyncio.FIRST_COMPLETED)
        idle.cancel()
        await asyncio.wait((grace,), timeout=_FAREWELL_SECONDS)
        await self._server.stop(None)  # what is still open only watches health or reads reflection
        await grace

    async def _listen_when_free(self) -> None:
        reason: str | None = ""
        while reason is not None:
            await asyncio.sleep(_RETRY_SECONDS * (1 + random.random()))  # noqa: S311  # no secret
            reason = await self._listen()
        self._runtime.health.regain(_PART)

    async def _listen(self) -> str | None:
        """Starts the server; or the reason why its address cannot be listened on."""
        host, port = self._settings.host, self._settings.port
        if reason := why_not(host, port, is_shared=self._is_shared):
            return reason
        server = self._build()
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        try:
            if self._credentials is None:
                bound = server.add_insecure_port(address)
            else:
                bound = server.add_secure_port(address, self._credentials)
        except RuntimeError:  # somebody was quicker
            return "another process listens there"
        await server.start()
        if self._is_shared and listens_elsewhere(host, bound):
            await server.stop(None)
            return "another process listens there"
        self._server, self.port = server, bound
        _LOGGER.info("gRPC server open", extra={"host": host, "port": bound, "tls": self._credentials is not None})
        return None

    def _refuse(self, reason: str) -> None:
        sentence = (
            f"gRPC cannot listen on {self._settings.host}, port {self._settings.port}: {reason}; "
            "set TURNSCORE_GRPC__PORT to another port, or TURNSCORE_GRPC__ENABLED=false"
        )
        _LOGGER.error("%s", sentence)
        self._runtime.health.lose(_PART, sentence)

    def _build(self) -> grpc.aio.Server:
        server = grpc.aio.server(
            options=_options(self._settings, is_shared=self._is_shared),
            compression=_COMPRESSION[self._settings.compression],
            maximum_concurrent_rpcs=self._settings.max_concurrent_calls,
        )
        server.add_generic_rpc_handlers([self._endpoints.handler()])
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        if self._settings.reflection:
            reflection.enable_server_reflection((SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME), server)
        return server

    async def _follow_health(self) -> None:
        """Reports /readyz in grpc.health.v1; on a draining process takes no more calls after `drain_seconds`."""
        while True:
            self._health_changed.clear()
            is_ready = self._runtime.health.is_ready
            status = health_pb2.HealthCheckResponse.SERVING if is_ready else health_pb2.HealthCheckResponse.NOT_SERVING
            for service in ("", SERVICE):
                await self._health.set(service, status)
            if self._runtime.health.state == "draining":
                await asyncio.sleep(self._runtime.settings.drain_seconds)
                self._stopping = self._stopping or asyncio.create_task(self._stop())
            await self._health_changed.wait()


def _options(settings: GrpcSettings, *, is_shared: bool) -> list[tuple[str, int]]:
    """gRPC's own options (grpc/impl/channel_arg_names.h); its times are in milliseconds."""
    options = [
        ("grpc.so_reuseport", int(is_shared)),
        ("grpc.max_receive_message_length", settings.max_message_bytes),
        ("grpc.max_send_message_length", -1),
        ("grpc.max_concurrent_streams", settings.max_concurrent_streams),
        ("grpc.keepalive_time_ms", round(1000 * settings.keepalive_seconds)),
        ("grpc.keepalive_timeout_ms", round(1000 * settings.keepalive_timeout_seconds)),
        # Without this one an unanswered probe ends a connection only after a minute (measured with grpcio 1.85).
        ("grpc.http2.ping_timeout_ms", round(1000 * settings.keepalive_timeout_seconds)),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", round(1000 * settings.min_ping_seconds)),
    ]
    if settings.max_connection_age_seconds:
        options.append(("grpc.max_connection_age_ms", round(1000 * settings.max_connection_age_seconds)))
    return options
