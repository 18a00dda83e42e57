"""The ASGI application of a service: routes, errors in one format, and the lifespan of its background tasks."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from starlette.exceptions import HTTPException
from starlette.staticfiles import StaticFiles

from nearcast.errors import NearcastError
from nearcast.service.api.body_limit import BodyLimit
from nearcast.service.api.content_type_header import ContentTypeHeader
from nearcast.service.api.context import Service
from nearcast.service.api.problems import MEDIA_TYPE, Problem, problem_from
from nearcast.service.api.routes import edges, live_map, messages, status, subscriptions, updates, webhooks
from nearcast.service.api.schemas import ProblemBody
from nearcast.service.api.subscription_schemas import subscription_schemas
from nearcast.service.api.validation_errors import field_errors


def make_app(service: Service) -> FastAPI:
    """Return the application of a service; its lifespan starts and stops the service."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        service.command_loop.start()
        service.webhooks.start(service)
        try:
            yield
        finally:
            service.hub.close()
            await service.webhooks.stop()
            await service.command_loop.stop()

    app = FastAPI(
        title="Nearcast",
        version=version("nearcast"),
        summary="Exact matching of geotagged messages against standing subscriptions.",
        lifespan=lifespan,
        docs_url=None,  # the generated page would load scripts from other hosts
        redoc_url=None,
        redirect_slashes=False,  # a redirect would repeat whatever host and query a request names
    )
    app.state.service = service
    schemas = subscription_schemas()
    for router in (
        subscriptions.make_router(schemas),
        messages.router,
        edges.router,
        updates.router,
        webhooks.router,
        status.router,
        live_map.make_router(schemas),
    ):
        app.include_router(router)
    app.mount("/web", StaticFiles(directory=live_map.WEB), name="web")
    app.add_middleware(BodyLimit, max_bytes=service.max_body_bytes, streams=(messages.STREAM,))
    app.add_middleware(ContentTypeHeader)
    app.add_exception_handler(Problem, _handle_problem)
    app.add_exception_handler(NearcastError, _handle_engine_error)
    app.add_exception_handler(RequestValidationError, _handle_validation_error)
    app.add_exception_handler(HTTPException, _handle_http_error)
    app.add_exception_handler(Exception, _handle_internal_error)
    app.openapi = lambda: _openapi(app)  # type: ignore[method-assign]
    return app


def _response(problem: Problem) -> Response:
    return Response(problem.body(), problem.status, problem.headers, MEDIA_TYPE)


async def _handle_problem(_: Request, error: Exception) -> Response:
    assert isinstance(error, Problem)
    return _response(error)


async def _handle_engine_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, NearcastError)
    return _response(problem_from(error))


async def _handle_validation_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    errors = field_errors(error.errors())
    first = errors[0]
    return _response(Problem(422, f"{first['field']} {first['rule']}; got {first['value']!r}", errors=errors))


async def _handle_http_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _response(Problem(error.status_code, error.detail, headers=error.headers))


async def _handle_internal_error(_: Request, error: Exception) -> Response:
    return _response(Problem(500, "an internal error occurred; the log of the service has the details"))


def _openapi(app: FastAPI) -> dict[str, Any]:
    if app.openapi_schema is None:
        description = get_openapi(
            title=app.title,
            version=app.version,
            summary=app.summary,
            routes=app.routes,
            separate_input_output_schemas=False,
        )
        schemas = description.setdefault("components", {}).setdefault("schemas", {})
        problem = ProblemBody.model_json_schema(ref_template="#/components/schemas/{model}")
        schemas |= problem.pop("$defs", {})
        schemas["ProblemBody"] = problem
        app.openapi_schema = description
    return app.openapi_schema
