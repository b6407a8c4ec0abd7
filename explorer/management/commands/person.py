"""manage.py person: creates a user, or changes a user's role."""

from django.contrib.auth import get_user_model
from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError, CommandParser

from explorer.people import users
from explorer.people.roles import RIGHTS


class Command(BaseCommand):
    help = "Create a person, or change their role. They sign in by a link (manage.py sign_in_link --user NAME) or a password."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", help="the name to sign in with")
        parser.add_argument("--role", required=True, choices=sorted(RIGHTS), help="what the person may do")

    def handle(self, name: str, role: str, **options) -> None:
        try:
            get_user_model()._meta.get_field("username").clean(name, None)
        except ValidationError as problem:
            raise CommandError(f"{name!r} is not a valid name: {' '.join(problem.messages)}") from problem
        try:
            is_new = users.set_role(name, role)
        except users.LastAdministrator as problem:
            raise CommandError(str(problem)) from problem
        self.stdout.write(f"{'Created' if is_new else 'Changed'} {name}: role {role}.")
        if is_new:
            self.stdout.write(f"Sign in with: manage.py sign_in_link --user {name}")
