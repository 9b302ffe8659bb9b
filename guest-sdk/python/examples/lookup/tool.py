"""Looks up a customer over HTTP, with a token that only the host knows."""

from dataclasses import dataclass
from urllib.parse import quote

import starling


@dataclass
class Customer:
    id: str
    name: str
    plan: str


@starling.tool(idempotent=True)
def lookup(id: str, base_url: str) -> Customer:
    """Looks up a customer by id.

    id: Digits, such as 17
    base_url: Address of the service
    """
    for attempt in 1, 2:
        response = starling.request("GET", f"{base_url}/customers/{quote(id, safe="")}", headers={
            "Accept": "application/json", "Authorization": "Bearer {{secret:CUSTOMER_TOKEN}}"}, effect=f"customer/{id}")
        if response.status != 503:
            break
    if response.status == 404:
        raise starling.discard(f"there is no customer {id}")
    if response.status != 200:
        raise starling.transient(f"the service answers {response.status}")
    found = response.json()
    return Customer(found["id"], found["name"], found["plan"])
