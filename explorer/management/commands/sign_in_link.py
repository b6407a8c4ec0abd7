"""manage.py sign_in_link: prints a one-time sign-in link."""

from django.conf import settings
from django.contrib.auth import get_user_model
from django.contrib.auth.models import AbstractUser
from django.core.management.base import BaseCommand, CommandError, CommandParser

from explorer.people import users
from explorer.people.sign_in import link_for


def address(port: int | None = None) -> str:
    """The site's public URL without its path prefix and without a trailing slash."""
    return settings.VITRINE_PUBLIC_URL.removesuffix(settings.PATH_PREFIX) or f"http://127.0.0.1:{port or settings.PORT}"


class Command(BaseCommand):
    help = "Print a link that signs a user in once; it is valid for one hour."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--user", help="the user name (default: an administrator)")
        parser.add_argument("--port", type=int, help="port of the site (default: from PORT or VITRINE_PUBLIC_URL)")

    def handle(self, user: str | None, port: int | None, **options) -> None:
        self.stdout.write(address(port) + link_for(_user(user)))


def _user(name: str | None) -> AbstractUser:
    if name is None:
        user = users.administrators().first()
        if user is None:
            raise CommandError("There is no administrator yet. Run manage.py seed.")
        return user
    user = get_user_model().objects.filter(is_active=True, username=name).first()
    if user is None:
        raise CommandError(f"There is no active user {name}. Create one: manage.py person {name} --role viewer")
    return user
