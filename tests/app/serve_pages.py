"""Addresses of every page of the web app: a new page goes through the tests of all of them."""

from credibly.app.server import application

FILES = ("/image", "/static/{name}", "/import/file")
ARGUMENTS = {"/label": "?name=fork", "/row": "?id=img%2F000"}
PAGES = [
    route.path + ARGUMENTS.get(route.path, "")
    for module in application.PAGES
    for route in module.router.routes
    if not route.path.startswith(("/api/", *FILES)) and "GET" in route.methods
]
