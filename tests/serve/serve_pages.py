"""Addresses of every page of the web app: a new page goes through the tests of all of them."""

from credibly.serve import _pages

FILES = ("/image", "/static/{name}")
ARGUMENTS = {"/label": "?name=fork"}
PAGES = [
    route.path + ARGUMENTS.get(route.path, "")
    for route in _pages.router.routes
    if route.path not in FILES
]
