"""URLs of the ready-made site: the explorer with its sign-in, and the admin."""

from django.contrib import admin
from django.urls import include, path

from explorer import urls as explorer_urls
from explorer.people import sign_in

explorer_with_sign_in = [*sign_in.urlpatterns, *explorer_urls.urlpatterns]

urlpatterns = [
    path("admin/login/", sign_in.admin_sign_in),
    path("admin/", admin.site.urls),
    path("", include((explorer_with_sign_in, "explorer"))),
]

handler400 = "explorer.site.errors.bad_request"
handler403 = "explorer.site.errors.forbidden"
handler404 = "explorer.site.errors.not_found"
handler500 = "explorer.site.errors.server_error"
