# docker build .               the service: a static binary on distroless, without a shell, not root
# docker build --target dev .  `postrider dev` with its own PostgreSQL, for laptops and CI: docs/guides/ci.md
FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
# The version in `postrider version`, /metrics and `postrider doctor`. The source has no history (.dockerignore), so
# set it: --build-arg VERSION=1.0.0 --build-arg REVISION=$(git rev-parse HEAD).
ARG VERSION=""
ARG REVISION=""
RUN PACKAGE=postrider/internal/version && CGO_ENABLED=0 go build -trimpath \
    -ldflags "-s -w -X ${PACKAGE}.release=${VERSION} -X ${PACKAGE}.revision=${REVISION}" -o /postrider ./cmd/postrider
RUN mkdir -p /state/dead

# PostgreSQL of the distribution, without what a laptop and CI do not need: the JIT compiler, whose LLVM would be a
# third of the image (sessions of postrider switch it off), documentation and translations.
FROM debian:bookworm-slim AS dev
RUN apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends \
        ca-certificates postgresql-15 && \
    dpkg --purge --force-depends libllvm14 libz3-4 && \
    rm -rf /usr/lib/postgresql/15/lib/llvmjit* /usr/lib/postgresql/15/lib/bitcode /var/lib/postgresql/* \
        /var/lib/apt/lists/* /usr/share/doc/* /usr/share/man/* /usr/share/locale/* /usr/share/i18n
COPY --from=build /postrider /usr/local/bin/postrider
COPY LICENSE THIRD_PARTY_NOTICES /usr/share/doc/postrider/
RUN install -d -o postgres -g postgres /var/lib/postrider
USER postgres
VOLUME /var/lib/postrider
# Endpoints are other containers, or the host of the containers.
ENV POSTRIDER_ALLOW_CIDR=10.0.0.0/8,172.16.0.0/12,192.168.0.0/16,fc00::/7
EXPOSE 7480 7481 7483
HEALTHCHECK --interval=2s --timeout=4s --start-period=30s --retries=15 CMD postrider ready
ENTRYPOINT ["/usr/local/bin/postrider"]
CMD ["dev", "--listen=0.0.0.0:7480", "--sink-listen=0.0.0.0:7481", "--tls-listen=0.0.0.0:7483", "--keep=/var/lib/postrider/data"]

FROM gcr.io/distroless/static-debian12:nonroot
ARG VERSION=""
ARG REVISION=""
LABEL org.opencontainers.image.title="postrider" \
      org.opencontainers.image.description="Azure Event Grid's delivery and retry semantics as one service on your own PostgreSQL" \
      org.opencontainers.image.licenses="MIT" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
# In a folder of PATH: `docker exec NODE postrider doctor`.
COPY --from=build /postrider /usr/local/bin/postrider
COPY LICENSE THIRD_PARTY_NOTICES /usr/share/doc/postrider/
# For exports of dead letters, /var/lib/postrider/dead: a new volume that is mounted there gets this owner.
COPY --from=build --chown=65532:65532 /state /var/lib/postrider
ENV POSTRIDER_LISTEN=0.0.0.0:7480
EXPOSE 7480
USER nonroot:nonroot
# The check tests that the node is alive, not that it is ready. A supervisor must not restart a node because the
# database is unavailable: the node has results in memory. It uses POSTRIDER_LISTEN and POSTRIDER_TLS_CERT.
HEALTHCHECK --interval=5s --timeout=4s --start-period=30s CMD ["/usr/local/bin/postrider", "ready", "--live"]
ENTRYPOINT ["/usr/local/bin/postrider"]
CMD ["serve"]
