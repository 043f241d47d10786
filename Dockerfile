# The agent's image. `make image` builds the same content without a container
# runtime or a registry, `make release` the one of all architectures.
FROM --platform=$BUILDPLATFORM golang:1.26-bookworm AS build
ARG VERSION=dev
ARG TARGETARCH
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN CGO_ENABLED=0 GOARCH=$TARGETARCH go build -trimpath -ldflags "-s -w -X main.version=${VERSION}" -o /namegate ./cmd/namegate
RUN GOARCH=$TARGETARCH release/licences ./cmd/namegate /doc

FROM debian:bookworm-slim
ARG VERSION=dev
# Debian's iptables has both variants; the agent takes the one that the host uses.
RUN apt-get update && apt-get install -y --no-install-recommends iptables nftables \
    && rm -rf /var/lib/apt/lists/*
COPY --from=build /namegate /usr/local/bin/namegate
COPY --from=build /doc /usr/share/doc/namegate
ENV PATH=/usr/local/bin:/usr/sbin:/usr/bin
LABEL org.opencontainers.image.title="namegate" \
      org.opencontainers.image.description="Node-local FQDN egress gateway for Kubernetes" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.source="https://github.com/namegate/namegate" \
      org.opencontainers.image.version="${VERSION}"
ENTRYPOINT ["/usr/local/bin/namegate"]
