"""docker-compose.yml and the Dockerfile, as parsed: what each container may do, and which secrets it knows."""

import re

import pytest
import yaml

from broker_core.listener.front_ends import known_ports
from explorer.site import settings as site_settings

from .vitrine import ROOT

SERVICES = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
IMAGE = (ROOT / "Dockerfile").read_text()
SECRETS = {"DATABASE_URL", "SECRET_KEY", "POSTGRES_PASSWORD"}
PORTS = {port.setting: f"${{{port.setting}:-{getattr(site_settings, port.setting)}}}" for port in known_ports()}
each_service = pytest.mark.parametrize("name", SERVICES)


@each_service
def test_a_container_has_only_the_privileges_it_needs(name):
    service = SERVICES[name]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["cap_drop"] == ["ALL"]
    assert service.get("cap_add", []) == ([] if name != "postgres" else ["CHOWN", "DAC_OVERRIDE", "FOWNER", "SETGID", "SETUID"])
    assert service["read_only"] is True and "/tmp" in service["tmpfs"]
    assert re.fullmatch(r"\d+[mg]", service["mem_limit"])


def test_only_the_web_server_and_the_listener_are_published_and_only_on_the_loopback_address():
    published = {name: service["ports"] for name, service in SERVICES.items() if "ports" in service}
    assert published.pop("web") == ["${BIND_ADDRESS:-127.0.0.1}:${PORT:-8000}:8000"]
    assert published == {"listener": [f"${{BIND_ADDRESS:-127.0.0.1}}:{port}:{port}" for port in PORTS.values()]}


def test_the_listener_opens_the_ports_that_are_published_and_all_parts_know_them():
    for service in ("listener", "web"):
        environment = SERVICES[service]["environment"]
        assert {name: environment[name] for name in PORTS} == PORTS
        assert environment["LISTEN_HOST"] == "0.0.0.0"
    assert SERVICES["listener"]["command"] == "python manage.py listen"


def test_a_certificate_is_mounted_where_the_listener_expects_it():
    environment, volumes = SERVICES["listener"]["environment"], SERVICES["listener"]["volumes"]
    for name, path in (("TLS_CERTIFICATE", "/run/certificate.pem"), ("TLS_KEY", "/run/key.pem")):
        assert environment[name] == f"${{{name}:+{path}}}"
        assert f"${{{name}:-/dev/null}}:{path}:ro" in volumes


@pytest.mark.parametrize("name", ["spark-master", "spark-worker"])
def test_a_spark_cluster_has_only_its_own_secret(name):
    service = SERVICES[name]
    environment = service["environment"]
    assert not SECRETS & set(environment)
    assert environment["_SPARK_AUTH_SECRET"] == "${SPARK_SECRET:-}"
    assert environment["SPARK_DAEMON_JAVA_OPTS"] == "-Dspark.authenticate=true"
    assert "${_SPARK_AUTH_SECRET:?Set SPARK_SECRET}" in service["command"], "it does not start without"
    assert service["profiles"] == ["spark"]


def test_the_driver_has_the_secret_of_the_cluster():
    environment = SERVICES["analysis"]["environment"]
    assert environment["SPARK_CONF_authenticate"] == "${SPARK_SECRET:+true}"
    assert environment["SPARK_CONF_authenticate_secret"] == "${SPARK_SECRET:-}"


def test_only_the_web_server_and_third_party_servers_have_a_health_check():
    assert "HEALTHCHECK" in IMAGE and "/healthz" in IMAGE
    of_the_image = {name for name, service in SERVICES.items() if service.get("image") == "vitrine"}
    assert {name for name in of_the_image if SERVICES[name].get("healthcheck") != {"disable": True}} == {"web"}


def test_containers_run_as_a_user_with_its_own_folders():
    assert "USER vitrine" in IMAGE and "mkdir -m 700 /data /spark" in IMAGE
