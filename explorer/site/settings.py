"""Settings of the ready-made site, the only module that reads the environment. Importing it starts nothing.

Every variable is optional; the README lists them.
"""

import os
import sys
from pathlib import Path

from .configuration import cores_for_spark, database_from_url, flag, one_of, secret_key, spark_conf, trusted_origins, whole_number

BASE_DIR = Path(__file__).resolve().parent.parent.parent
environment = os.environ

# --- where things are -------------------------------------------------------------------------------------------------
VITRINE_DATA = Path(environment.get("VITRINE_DATA") or BASE_DIR / ".vitrine").expanduser().resolve()
PORT = whole_number("PORT", environment.get("PORT"), default=8000)
PATH_PREFIX = environment.get("PATH_PREFIX", "").strip("/")
PATH_PREFIX = f"/{PATH_PREFIX}" if PATH_PREFIX else ""
FORCE_SCRIPT_NAME = PATH_PREFIX or None
ARCHIVE_URL = environment.get("ARCHIVE_URL") or str(VITRINE_DATA / "archive")
RUNS_FOLDER = VITRINE_DATA / "runs"
SPARK_MASTER = environment.get("SPARK_MASTER") or f"local[{cores_for_spark()}]"
SPARK_NICE = whole_number("SPARK_NICE", environment.get("SPARK_NICE"), default=10)
SPARK_KEEP_SECONDS = whole_number("SPARK_KEEP_SECONDS", environment.get("SPARK_KEEP_SECONDS"), default=600)
SPARK_KEEP_MEGABYTES = whole_number("SPARK_KEEP_MEGABYTES", environment.get("SPARK_KEEP_MEGABYTES"), default=1500)
SPARK_CONF = spark_conf(environment)
# A stored result of an analysis that is older is made again when its page is opened.
ANALYSIS_FRESH_SECONDS = whole_number("ANALYSIS_FRESH_SECONDS", environment.get("ANALYSIS_FRESH_SECONDS"), default=600)
VITRINE_PUBLIC_URL = environment.get("VITRINE_PUBLIC_URL", "").rstrip("/")
BEHIND_TLS = VITRINE_PUBLIC_URL.startswith("https://")
VITRINE_LIMITS = environment.get("VITRINE_LIMITS") or "strict"
VITRINE_ACTOR_FOR = "explorer.people.roles.actor_for"  # how the broker's admin gets the actor of a user
VITRINE_ENVIRONMENT = environment.get("VITRINE_ENVIRONMENT", "").strip()
VITRINE_ENVIRONMENT_COLOR = environment.get("VITRINE_ENVIRONMENT_COLOR", "").strip().lower()
VITRINE_BODY_FORMATTER = environment.get("VITRINE_BODY_FORMATTER", "").strip()  # see explorer/bodies/display.py
VITRINE_DEMO = flag(environment.get("VITRINE_DEMO"), default=True)

# --- limits of requests: see broker_core/wire/bounded_http.py and bodies.py ----------------------------------------------
CONNECTIONS_PER_ADDRESS = whole_number("CONNECTIONS_PER_ADDRESS", environment.get("CONNECTIONS_PER_ADDRESS"), default=500)
MAX_FORM_BYTES = DATA_UPLOAD_MAX_MEMORY_SIZE = 2 * 2**20  # a form; without files, also on pages with their own limit
BODY_LIMITS = {  # of pages that accept files from signed-in users
    "explorer:send": 101 * 2**20,  # the largest possible maximum message size, and the form around it
    "explorer:rabbitmq_definitions": 21 * 2**20,
    "explorer:messages_import": 17 * 2**20,
    "explorer:configuration": 17 * 2**20,  # a preview carries the file as a form field, in which a byte may become three
}

# --- network clients: see broker_core/listener ------------------------------------------------------------------------
LISTEN_HOST = environment.get("LISTEN_HOST") or "127.0.0.1"
AMQP_PORT = whole_number("AMQP_PORT", environment.get("AMQP_PORT"), default=5672)
AMQPS_PORT = whole_number("AMQPS_PORT", environment.get("AMQPS_PORT"), default=5671)
SERVICE_BUS_PORT = whole_number("SERVICE_BUS_PORT", environment.get("SERVICE_BUS_PORT"), default=5300)
SERVICE_BUS_TLS_PORT = whole_number("SERVICE_BUS_TLS_PORT", environment.get("SERVICE_BUS_TLS_PORT"), default=5301)
QUEUE_STORAGE_PORT = whole_number("QUEUE_STORAGE_PORT", environment.get("QUEUE_STORAGE_PORT"), default=10001)
QUEUE_STORAGE_TLS_PORT = whole_number("QUEUE_STORAGE_TLS_PORT", environment.get("QUEUE_STORAGE_TLS_PORT"), default=10011)
LISTEN_CONNECTIONS = whole_number("LISTEN_CONNECTIONS", environment.get("LISTEN_CONNECTIONS"), default=1000)
LISTEN_CONNECTIONS_PER_ADDRESS = whole_number(
    "LISTEN_CONNECTIONS_PER_ADDRESS", environment.get("LISTEN_CONNECTIONS_PER_ADDRESS"), default=200
)
LISTEN_HANDSHAKE_SECONDS = whole_number("LISTEN_HANDSHAKE_SECONDS", environment.get("LISTEN_HANDSHAKE_SECONDS"), default=10)
LISTEN_UNREAD_KB = whole_number("LISTEN_UNREAD_KB", environment.get("LISTEN_UNREAD_KB"), default=1024)
LISTEN_UNREAD_SECONDS = whole_number("LISTEN_UNREAD_SECONDS", environment.get("LISTEN_UNREAD_SECONDS"), default=60)
TLS_CERTIFICATE = environment.get("TLS_CERTIFICATE", "")  # paths of PEM files
TLS_KEY = environment.get("TLS_KEY", "")
WELL_KNOWN_KEYS = one_of("WELL_KNOWN_KEYS", environment.get("WELL_KNOWN_KEYS"), ("loopback", "everywhere", "off"))
FAILED_AUTHENTICATION_DELAY_SECONDS = whole_number(
    "FAILED_AUTHENTICATION_DELAY_SECONDS", environment.get("FAILED_AUTHENTICATION_DELAY_SECONDS"), default=1
)
FAILED_AUTHENTICATIONS = whole_number("FAILED_AUTHENTICATIONS", environment.get("FAILED_AUTHENTICATIONS"), default=10)
FAILED_AUTHENTICATION_WINDOW_SECONDS = whole_number(
    "FAILED_AUTHENTICATION_WINDOW_SECONDS", environment.get("FAILED_AUTHENTICATION_WINDOW_SECONDS"), default=60
)
FAILED_AUTHENTICATION_REFUSAL_SECONDS = whole_number(
    "FAILED_AUTHENTICATION_REFUSAL_SECONDS", environment.get("FAILED_AUTHENTICATION_REFUSAL_SECONDS"), default=60
)

# --- security ---------------------------------------------------------------------------------------------------------
DEBUG = False
SECRET_KEY = environment.get("SECRET_KEY") or secret_key(VITRINE_DATA)
ALLOWED_HOSTS = [
    host.strip() for host in (environment.get("ALLOWED_HOSTS") or "localhost,127.0.0.1,[::1]").split(",") if host.strip()
]
CSRF_TRUSTED_ORIGINS = trusted_origins(ALLOWED_HOSTS, VITRINE_PUBLIC_URL)
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = BEHIND_TLS
CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": ["'none'"],
        "script-src": ["'self'"],
        "style-src": ["'self'"],
        "img-src": ["'self'", "data:"],
        "connect-src": ["'self'"],
        "form-action": ["'self'"],
        "base-uri": ["'none'"],
        "frame-ancestors": ["'none'"],
    }
}
SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_NAME = "vitrine_session"
CSRF_COOKIE_NAME = "vitrine_csrf"
SESSION_COOKIE_PATH = CSRF_COOKIE_PATH = f"{PATH_PREFIX}/"
SIGN_IN_LINK_SECONDS = 3600
LOGIN_URL = "explorer:sign_in"
LOGIN_REDIRECT_URL = "explorer:now"
LOGOUT_REDIRECT_URL = "explorer:sign_in"
CSRF_FAILURE_VIEW = "explorer.site.errors.csrf_failure"
AUTHENTICATION_BACKENDS = ["explorer.people.sign_in_limits.LimitedPasswords"]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator"},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]

# --- the application --------------------------------------------------------------------------------------------------
INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "channels",
    "django_htmx",
    "template_partials.apps.SimpleAppConfig",  # its loader is below
    "django_celery_beat",
    "csp",
    "broker_core",
    "explorer",
]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "servestatic.middleware.ServeStaticMiddleware",
    "explorer.site.compression.CompressPages",
    "csp.middleware.CSPMiddleware",
    "explorer.site.bodies.RefuseLargeBodies",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
]
ROOT_URLCONF = "explorer.site.urls"
ASGI_APPLICATION = "explorer.site.asgi.application"
CHANNEL_LAYERS = {"default": {"BACKEND": "channels.layers.InMemoryChannelLayer"}}
_LOADERS = ["explorer.site.template_loading.Loader", "django.template.loaders.app_directories.Loader"]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        # Before the apps': these override other packages' templates. Those of a family are in its package.
        "DIRS": [BASE_DIR / "templates", *sorted((BASE_DIR / "explorer").glob("*/templates"))],
        "OPTIONS": {
            "loaders": [("template_partials.loader.Loader", [("django.template.loaders.cached.Loader", _LOADERS)])],
            "libraries": {
                path.parent.name: f"explorer.{path.parent.name}.tags" for path in (BASE_DIR / "explorer").glob("*/tags.py")
            },
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    }
]
STATIC_URL = f"{PATH_PREFIX}/static/"  # absolute: a relative URL would be resolved without the prefix
STATIC_ROOT = VITRINE_DATA / "static"
STATICFILES_DIRS = [BASE_DIR / "static"]
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "explorer.site.compression.CollectedFiles"},
}
SERVESTATIC_USE_FINDERS = True  # for tests and commands, which do not run collectstatic
SERVESTATIC_ALLOW_ALL_ORIGINS = False  # no other site needs these files
LANGUAGE_CODE = "en-gb"
USE_I18N = False
TIME_ZONE = "UTC"
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

# --- the database -----------------------------------------------------------------------------------------------------
DATABASE_URL = environment.get("DATABASE_URL", "")
EMBEDDED_POSTGRES = VITRINE_DATA / "postgres"
_COMMON = {"connect_timeout": 4, "prepare_threshold": 5, "options": "-c TimeZone=UTC"}
DATABASES = {
    "default": database_from_url(DATABASE_URL, _COMMON)
    if DATABASE_URL
    else {
        "ENGINE": "explorer.site.embedded_postgres",
        "NAME": "vitrine",
        "USER": "postgres",
        "HOST": "",  # found at the first connection
        "OPTIONS": {"data": str(EMBEDDED_POSTGRES), **_COMMON},
        "CONN_HEALTH_CHECKS": True,
    }
}

# The free space is known only of the included PostgreSQL, whose data folder is on this machine (broker_core/runtime/room.py).
VITRINE_DISK_FOLDER = None if DATABASE_URL else VITRINE_DATA
VITRINE_DISK_RESERVE_MB = whole_number("VITRINE_DISK_RESERVE_MB", environment.get("VITRINE_DISK_RESERVE_MB"), default=512)
VITRINE_KEPT_MB = whole_number("VITRINE_KEPT_MB", environment.get("VITRINE_KEPT_MB"), default=1024)  # of ended messages at most
DATABASE_ROUTERS = ["broker_core.store.router.BrokerRouter"]
VITRINE_NAMESPACE_DATABASES: dict[str, str] = {}  # namespace -> alias in DATABASES: see docs/scale.md

# --- Celery: see explorer/site/celery.py ------------------------------------------------------------------------------
CELERY_BROKER_URL = environment.get("CELERY_BROKER_URL") or "vitrine://default/system"
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_CONNECTION_MAX_RETRIES = None  # the database may be unavailable for longer than the default of 100 retries
CELERY_WORKER_CANCEL_LONG_RUNNING_TASKS_ON_CONNECTION_LOSS = False  # tasks continue; the broker settles by token
CELERY_TASK_DEFAULT_QUEUE = "sweeps"
CELERY_TASK_ROUTES = {
    "explorer.run_operation": {"queue": "operations"},
    "explorer.run_load": {"queue": "operations"},
    "explorer.run_analysis": {"queue": "analysis"},
}
CELERY_TASK_IGNORE_RESULT = True  # sweeps and analyses store their own results
CELERY_BEAT_SCHEDULER = "django_celery_beat.schedulers:DatabaseScheduler"
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_WORKER_ENABLE_REMOTE_CONTROL = False  # not used, and it costs one queue per process
CELERY_WORKER_REDIRECT_STDOUTS = False  # otherwise a traceback becomes many records
CELERY_WORKER_HIJACK_ROOT_LOGGER = False

# --- logging ----------------------------------------------------------------------------------------------------------
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {
        "plain": {"()": "explorer.site.logs.Formatter", "fmt": "{asctime} {levelname} {name}: {message}", "style": "{"}
    },
    "filters": {"limit_repeats": {"()": "explorer.site.logs.LimitRepeats"}},
    "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "plain", "stream": sys.stderr}},
    "root": {"handlers": ["console"], "level": environment.get("LOG_LEVEL") or "INFO"},
    "loggers": {
        "django.request": {"level": "ERROR"},  # 404 and 403 are not logged
        "uvicorn.error": {"filters": ["limit_repeats"]},  # malformed requests and frames, connections that end early
        "broker_core.listener.accepting": {"filters": ["limit_repeats"]},  # connections over the limits, failed handshakes
        "broker_core.listener.amqp": {"filters": ["limit_repeats"]},  # protocols that are not served
        "celery.beat": {"level": "WARNING"},  # two lines a second otherwise
        "celery.worker.strategy": {"level": "WARNING"},
        "celery.app.trace": {"level": "WARNING"},
        "py4j": {"level": "WARNING"},
    },
}
