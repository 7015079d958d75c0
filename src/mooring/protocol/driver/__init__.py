"""Automatic runs of a member's steps: each step runs as soon as its inputs are there, and files travel through a place."""

from mooring.protocol.driver.driver import Driver, Turn, Waiting
from mooring.protocol.driver.post import Event
from mooring.protocol.driver.questions import Decide, Given, OpenQuestion, Sharing
from mooring.protocol.driver.routes import Route, list_routes
from mooring.protocol.driver.standing import Standing

__all__ = [
    "Decide",
    "Driver",
    "Event",
    "Given",
    "OpenQuestion",
    "Route",
    "Sharing",
    "Standing",
    "Turn",
    "Waiting",
    "list_routes",
]
