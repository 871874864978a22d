"""ExpireDelegationToken (KIP-48): refused as RenewDelegationToken, whose response has the same fields."""

from __future__ import annotations

from kafkalog.server.apis.renew_delegation_token import handle, refused

__all__ = ["handle", "refused"]
