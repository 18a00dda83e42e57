"""The service as one ASGI application: routes, errors in one form, and the steward's life around it."""

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
from nearcast.service.context import Service
from nearcast.service.faults import faults_of
from nearcast.service.limit import BodyLimit
from nearcast.service.problem import MEDIA_TYPE, Problem, of_error
from nearcast.service.routes import messages, page, status, subscriptions, updates, webhooks
from nearcast.service.schema import ProblemBody


def make_app(service: Service) -> FastAPI:
    """Return the application of a service, which runs while the application does."""

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
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
        summary="Standing subscriptions over a stream of places and words, answered exactly.",
        lifespan=life,
        docs_url=None,  # the page would load its parts from elsewhere
        redoc_url=None,
    )
    app.state.service = service
    for routes in (subscriptions, messages, updates, webhooks, status, page):
        app.include_router(routes.router)
    app.mount("/web", StaticFiles(directory=page.WEB), name="web")
    app.add_middleware(BodyLimit, most_bytes=service.most_bytes, streams=(messages.STREAM,))
    app.add_exception_handler(Problem, _problem)
    app.add_exception_handler(NearcastError, _engine_error)
    app.add_exception_handler(RequestValidationError, _invalid_form)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(Exception, _our_mistake)
    app.openapi = lambda: _description(app)  # type: ignore[method-assign]
    return app


def _said(problem: Problem) -> Response:
    return Response(problem.body(), problem.status, problem.headers, MEDIA_TYPE)


async def _problem(_: Request, error: Exception) -> Response:
    assert isinstance(error, Problem)
    return _said(error)


async def _engine_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, NearcastError)
    return _said(of_error(error))


async def _invalid_form(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    faults = faults_of(error.errors())
    first = faults[0]
    return _said(Problem(422, f"{first['field']} {first['rule']}; got {first['value']!r}", errors=faults))


async def _http_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _said(Problem(error.status_code, error.detail, headers=error.headers))


async def _our_mistake(_: Request, error: Exception) -> Response:
    return _said(Problem(500, "something went wrong here; it is in the log"))


def _description(app: FastAPI) -> dict[str, Any]:
    if app.openapi_schema is None:
        made = get_openapi(
            title=app.title,
            version=app.version,
            summary=app.summary,
            routes=app.routes,
            separate_input_output_schemas=False,
        )
        schemas = made.setdefault("components", {}).setdefault("schemas", {})
        own = ProblemBody.model_json_schema(ref_template="#/components/schemas/{model}")
        schemas |= own.pop("$defs", {})
        schemas["ProblemBody"] = own
        app.openapi_schema = made
    return app.openapi_schema
