# Static binary on distroless: no shell, no package manager, not root.
FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN CGO_ENABLED=0 go build -trimpath -ldflags "-s -w" -o /postrider ./cmd/postrider

FROM gcr.io/distroless/static-debian12:nonroot
COPY --from=build /postrider /postrider
ENV POSTRIDER_LISTEN=0.0.0.0:7480
EXPOSE 7480
USER nonroot:nonroot
ENTRYPOINT ["/postrider"]
CMD ["serve"]
