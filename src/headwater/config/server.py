"""The HTTP server of `headwater run`: where it listens, and who may use it."""

from __future__ import annotations

import ipaddress
from typing import Annotated, Self

from pydantic import AfterValidator, BeforeValidator, GetJsonSchemaHandler, SecretStr, ValidationInfo, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from headwater.config.base import Model, or_off
from headwater.config.file import shown
from headwater.config.values import Port, place

__all__ = ["Server", "Tls", "is_loopback"]

LOOPBACK = "127.0.0.1"


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches it."""
    name = host.strip("[]").rstrip(".").lower()
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _file(text: str, info: ValidationInfo) -> str:
    if "://" in text:
        raise ValueError(f"not a file of this machine: {shown(text)}")
    return place(text, info)


File = Annotated[str, AfterValidator(_file)]


class Tls(Model):
    """PEM files; `cert` may have the certificates of those that have signed it after its own."""

    cert: File
    key: File


class Server(Model):
    """Without a token nothing can be changed, and only this machine may read."""

    host: Annotated[str, BeforeValidator(lambda host: host or LOOPBACK)] = LOOPBACK
    port: Port = 8080
    token: SecretStr = SecretStr("")
    tls: Tls | None = None

    @model_validator(mode="after")
    def _guarded(self) -> Self:
        token = self.token.get_secret_value()
        if not token and not is_loopback(self.host):
            raise ValueError(
                f"host {shown(self.host)} can be reached from other machines, and there is no token (set `token`, for"
                f" example ${{HEADWATER_TOKEN}}, or listen on {LOOPBACK})"
            )
        if not token.isascii() or not token.isprintable() or " " in token:
            raise ValueError(
                "the token may have ASCII letters, digits and signs, and no space (`openssl rand -hex 32` makes one)"
            )
        return self

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return or_off(core, handler)
