"""The service: routes, who may ask, and one answer's way from request to client."""

import asyncio
import hmac
import time
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Any, Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from k31ctl.engine.service import metrics as measured
from k31ctl.engine.service.connection import Bodies, EventStream, json_object, unless_gone
from k31ctl.engine.service.context import refuse_too_many_values
from k31ctl.engine.service.documents import Writer, failure
from k31ctl.engine.service.faults import ApiError, bad_request, stopping
from k31ctl.engine.service.generator import (
    GeneratedToken,
    GenerationError,
    GenerationStoppedError,
    Generator,
)
from k31ctl.engine.service.limits import Limits
from k31ctl.engine.service.openapi import openapi_document
from k31ctl.engine.service.reader import Delta, Reader
from k31ctl.engine.service.tasks import (
    ServedModel,
    Task,
    chat_task,
    completion_task,
    prompt_ids,
)
from k31ctl.errors import InputError

WARNING_HEADER: Final = "X-K31ctl-Warning"
Endpoint = Callable[[Request], Awaitable[Response]]
Reading = Callable[[Mapping[str, Any], ServedModel, Limits], Task]


class Service:
    """A model behind an OpenAI-compatible endpoint."""

    def __init__(
        self, model: ServedModel, generator: Generator, *, limits: Limits, api_key: str | None
    ) -> None:
        self._model, self._generator, self.limits = model, generator, limits
        self._api_key = api_key
        self._bodies = Bodies(limits)
        self._metrics = measured.Metrics()
        self._num_requests = self._image_bytes = 0
        self._created = int(time.time())

    def app(self) -> Starlette:
        """The application, for a server to run."""
        routes = (
            ("/v1/chat/completions", self._chat, "POST", True),
            ("/v1/completions", self._completion, "POST", True),
            ("/v1/models", self._models, "GET", True),
            ("/v1/models/{model:path}", self._one_model, "GET", True),
            ("/tokenize", self._tokenize, "POST", True),
            ("/health", self._health, "GET", False),
            ("/metrics", self._show_metrics, "GET", False),
            ("/openapi.json", self._openapi, "GET", False),
        )
        app = Starlette(
            routes=[
                Route(path, self._guarded(path, endpoint, needs_key=needs_key), methods=[method])
                for path, endpoint, method, needs_key in routes
            ],
            exception_handlers={HTTPException: _not_found, Exception: _broken},
        )
        app.router.redirect_slashes = False  # to what a client's Host header says
        return app

    def stop(self) -> None:
        """End all that is open, from the server's loop: clients are told, and none is awaited."""
        self._bodies.stop()
        self._generator.stop()

    def _guarded(self, path: str, endpoint: Endpoint, *, needs_key: bool) -> Endpoint:
        """An endpoint whose failures are answers, counted with the rest."""

        async def guarded(request: Request) -> Response:
            try:
                if needs_key:
                    self._check_key(request)
                response = await endpoint(request)
            except InputError as error:
                response = _fault(bad_request(error))
            except ApiError as fault:
                response = _fault(fault)
            except ClientDisconnect:
                response = Response(status_code=499)
            self._metrics.count("http_requests_total", path=path, status=response.status_code)
            return response

        return guarded

    def _check_key(self, request: Request) -> None:
        if self._api_key is None:
            return
        scheme, _, key = request.headers.get("authorization", "").partition(" ")
        is_right = hmac.compare_digest(key.strip().encode(), self._api_key.encode())
        if scheme.lower() != "bearer" or not is_right:
            raise ApiError(401, "send Authorization: Bearer KEY, with this server's key")

    async def _chat(self, request: Request) -> Response:
        return await self._answer(request, chat_task)

    async def _completion(self, request: Request) -> Response:
        return await self._answer(request, completion_task)

    async def _answer(self, request: Request, reading: Reading) -> Response:
        begun_s = time.monotonic()
        task = await self._task(request, reading)
        writer = Writer(
            task,
            name=self._model.name,
            request_id=("chatcmpl-" if task.chat else "cmpl-") + uuid.uuid4().hex,
            created=int(time.time()),
        )
        reader = Reader(task, self._model.tokenizer)
        headers = {WARNING_HEADER: "; ".join(task.warnings)} if task.warnings else {}
        deltas = self._deltas(task, reader, begun_s)
        if not task.is_streamed:
            document = await unless_gone(request.receive, _whole(deltas, reader, writer))
            return JSONResponse(document, headers=headers)
        pieces = _pieces(deltas, reader, writer)
        first = await unless_gone(request.receive, anext(pieces))
        stall_s = self.limits.stall_s
        return EventStream(first, pieces, headers=headers, stall_s=stall_s)

    async def _task(self, request: Request, reading: Reading) -> Task:
        """Understand a request, away from the loop that serves the others."""
        self._check_room()
        body = await self._bodies.read(request)
        try:
            return await asyncio.to_thread(self._understood, body, reading)
        finally:
            self._bodies.release(len(body))

    def _check_room(self) -> None:
        if self._num_requests >= self.limits.max_requests:
            raise ApiError(503, f"{self._num_requests} requests are open already: try again")

    def _understood(self, body: bytes, reading: Reading) -> Task:
        given = self._given(body)
        try:
            return reading(given, self._model, self.limits)
        except RecursionError:
            raise ApiError(400, "the body is nested too deeply") from None

    def _given(self, body: bytes) -> Mapping[str, Any]:
        refuse_too_many_values(body, self._model.max_model_tokens)
        given = json_object(body)
        self._check_model(given.get("model"))
        return given

    def _check_model(self, name: object) -> None:
        if name is not None and name != self._model.name:
            text = f"there is no model {name!r:.80} here, only {self._model.name!r}"
            raise ApiError(404, text, param="model", code="model_not_found")

    async def _deltas(
        self, task: Task, reader: Reader, begun_s: float
    ) -> AsyncGenerator[list[Delta], None]:
        """What each token brings; an empty list first, once the request is let in."""
        self._check_room()
        image_bytes = sum(len(image.rgb) for image in task.work.images)
        if self._image_bytes + image_bytes > self.limits.max_open_image_bytes:
            raise ApiError(503, "too many images at a time: try again")
        self._num_requests += 1
        self._image_bytes += image_bytes
        ending = "abort"
        try:
            yield []
            async with aclosing(self._tokens(task, begun_s)) as tokens:
                async for token in tokens:
                    yield reader.feed(token)
                    if reader.has_ended:
                        break
            yield reader.finish()
            ending = reader.finish_reason
        except (ApiError, GenerationError):
            ending = "error"
            raise
        finally:
            self._num_requests -= 1
            self._image_bytes -= image_bytes
            self._count(task, reader, ending, begun_s)

    async def _tokens(self, task: Task, begun_s: float) -> AsyncGenerator[GeneratedToken, None]:
        """The generator's tokens, each in time."""
        deadline = asyncio.get_running_loop().time() + self.limits.request_s
        last_s = 0.0
        async with aclosing(self._generator.generate(task.work)) as tokens:
            while True:
                try:
                    async with asyncio.timeout_at(deadline):
                        token = await anext(tokens, None)
                except TimeoutError:
                    text = f"the answer took more than {self.limits.request_s:g} seconds"
                    raise ApiError(504, text) from None
                if token is None:
                    return
                now_s = time.monotonic()
                if last_s:
                    self._metrics.observe("inter_token_latency_seconds", now_s - last_s)
                else:
                    self._metrics.observe("time_to_first_token_seconds", now_s - begun_s)
                last_s = now_s
                yield token

    def _count(self, task: Task, reader: Reader, ending: str, begun_s: float) -> None:
        self._metrics.count("request_finished_total", reason=ending)
        self._metrics.count("prompt_tokens_total", len(task.work.prompt_ids))
        self._metrics.count("generation_tokens_total", reader.num_tokens)
        self._metrics.observe("e2e_request_latency_seconds", time.monotonic() - begun_s)

    async def _models(self, _: Request) -> Response:
        return JSONResponse({"object": "list", "data": [self._described()]})

    async def _one_model(self, request: Request) -> Response:
        self._check_model(request.path_params["model"])
        return JSONResponse(self._described())

    def _described(self) -> dict[str, Any]:
        return {
            "id": self._model.name,
            "object": "model",
            "created": self._created,
            "owned_by": "k31ctl",
            "max_model_len": self._model.max_model_tokens,
        }

    async def _tokenize(self, request: Request) -> Response:
        body = await self._bodies.read(request)
        try:
            ids = await asyncio.to_thread(self._ids, body)
        finally:
            self._bodies.release(len(body))
        most = self._model.max_model_tokens
        return JSONResponse({"tokens": ids, "count": len(ids), "max_model_len": most})

    def _ids(self, body: bytes) -> list[int]:
        given = self._given(body)
        try:
            return prompt_ids(given, self._model, self.limits)
        except RecursionError:
            raise ApiError(400, "the body is nested too deeply") from None

    async def _health(self, _: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def _show_metrics(self, _: Request) -> Response:
        load = self._generator.load()
        text = self._metrics.text(load, num_requests=self._num_requests)
        return Response(text, headers={"Content-Type": measured.CONTENT_TYPE})

    async def _openapi(self, _: Request) -> Response:
        return JSONResponse(openapi_document(self._model.name, needs_key=self._api_key is not None))


async def _whole(
    deltas: AsyncGenerator[list[Delta], None], reader: Reader, writer: Writer
) -> dict[str, Any]:
    try:
        async with aclosing(deltas):
            found = [delta async for some in deltas for delta in some]
    except GenerationError as error:
        raise _model_fault(error) from None
    return writer.whole(found, reader)


async def _pieces(
    deltas: AsyncGenerator[list[Delta], None], reader: Reader, writer: Writer
) -> AsyncGenerator[bytes, None]:
    """A stream's pieces; a failure before the first is raised, a later one is a piece."""
    has_begun = False
    try:
        async with aclosing(deltas):
            async for some in deltas:
                if not has_begun:
                    for piece in writer.first():
                        has_begun = True
                        yield piece
                for delta in some:
                    for piece in writer.piece(delta):
                        has_begun = True
                        yield piece
    except (ApiError, GenerationError) as error:
        fault = error if isinstance(error, ApiError) else _model_fault(error)
        if not has_begun:
            raise fault from None
        for piece in failure(fault.document()):
            yield piece
        return
    for piece in writer.last(reader):
        yield piece


def _model_fault(error: GenerationError) -> ApiError:
    if isinstance(error, GenerationStoppedError):
        return stopping()
    return ApiError(500, f"the model cannot go on with this request: {error}")


def _fault(fault: ApiError) -> Response:
    headers = {"Retry-After": "1"} if fault.status == 503 else {}  # noqa: PLR2004
    return JSONResponse(fault.document(), status_code=fault.status, headers=headers)


async def _not_found(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 404
    headers = error.headers if isinstance(error, HTTPException) else None
    text = f"{request.method} {request.url.path} is not offered; see /openapi.json"
    return JSONResponse(ApiError(status, text).document(), status_code=status, headers=headers)


async def _broken(_: Request, __: Exception) -> Response:
    return _fault(ApiError(500, "this is a fault of the server; its log has the trace"))
