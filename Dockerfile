# docker build .               the service: a static binary on distroless, without a shell or a package manager, not root.
# docker build --target dev .  `postrider dev` with a PostgreSQL of its own, to try it: docker run --rm -p 7480:7480 -p 7481:7481 IMAGE
FROM golang:1.26 AS build
ARG VERSION=""
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X main.release=${VERSION}" -o /postrider ./cmd/postrider

FROM postgres:17-bookworm AS dev
COPY --from=build /postrider /usr/local/bin/postrider
RUN install -d -o postgres -g postgres /var/lib/postrider
USER postgres
VOLUME /var/lib/postrider
EXPOSE 7480 7481
ENTRYPOINT ["/usr/local/bin/postrider"]
CMD ["dev", "--listen", "0.0.0.0:7480", "--sink-listen", "0.0.0.0:7481", "--keep", "/var/lib/postrider/data"]

FROM gcr.io/distroless/static-debian12:nonroot
ARG VERSION=""
LABEL org.opencontainers.image.title="postrider" \
      org.opencontainers.image.description="Azure Event Grid's delivery and retry semantics as one service on your own PostgreSQL" \
      org.opencontainers.image.licenses="MIT" \
      org.opencontainers.image.version="${VERSION}"
COPY --from=build /postrider /postrider
ENV POSTRIDER_LISTEN=0.0.0.0:7480
EXPOSE 7480
USER nonroot:nonroot
HEALTHCHECK --interval=5s --timeout=3s --start-period=30s CMD ["/postrider", "ready"]
ENTRYPOINT ["/postrider"]
CMD ["serve"]
