"""Addresses of every page of the web app: a new page goes through the tests of all of them."""

from credibly.app.server import application

FILES = ("/image", "/static/{name}", "/import/file")
ARGUMENTS = {"/label": "?name=fork", "/row": "?id=img%2F000"}
PAGES = [
    route.path + ARGUMENTS.get(route.path, "")
    for router in application.PAGES
    for route in router.routes
    if route.path not in FILES and "GET" in route.methods
]
