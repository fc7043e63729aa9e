"""Requests to the API server with the user's own credentials, for the commands that write."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from extender.cli import console
from extender.cli.errors import CommandError
from protos import logs
from protos.contract import names
from protos.kube import credentials, errors
from protos.kube.client import ApiClient

BY = {"fieldManager": names.COMMANDS}


@asynccontextmanager
async def client(kubeconfig: str, context: str, what: str) -> AsyncIterator[ApiClient]:
    """A client with the credentials of a kubeconfig; its errors become a CommandError that names `what`, which failed.

    The API server decides what the user may do. Only errors are logged: standard output is the command's.
    """
    logs.configure("console", "error")
    try:
        connection = await credentials.load(kubeconfig or None, context or None)
        async with ApiClient(connection, user_agent=names.COMMANDS, warned=console.warn) as made:
            yield made
    except errors.CredentialsError as error:
        raise CommandError(f"{what}: {error}") from error
    except errors.NotFound as error:
        raise CommandError(f"{what}: {error.message or 'not found'}") from error
    except errors.AlreadyExists as error:
        raise CommandError(f"{what}: it exists already") from error
    except errors.Conflict as error:
        raise CommandError(f"{what}: it was changed or replaced meanwhile: try again") from error
    except errors.Unavailable as error:
        raise CommandError(f"{what}: the API server does not answer ({error.message or error})") from error
    except errors.ApiError as error:
        raise CommandError(f"{what}: the API server refuses: {error.message or error}") from error
