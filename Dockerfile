# Copyright The Spokelet Authors.
# SPDX-License-Identifier: Apache-2.0

# The images of hub and agent, for builders with a Docker daemon:
#
#   docker buildx build --platform linux/amd64,linux/arm64 --build-arg BINARY=spokelet-hub .
#
# "make images" builds the same contents without one, but for the authorities, and those of
# worker bundles, which have workerd in them.
#
# The result has no base image: the binaries are static, and the user is a number. The
# builder is named by tag, and is to be pinned by digest (golang:1.26@sha256:...) when
# the repository is published, as Dependabot then keeps it (.github/dependabot.yml).
FROM --platform=$BUILDPLATFORM golang:1.26 AS build
ARG TARGETOS TARGETARCH BINARY VERSION=dev
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH go build -trimpath \
    -ldflags "-s -w -X github.com/spokelet/spokelet/internal/command.Version=$VERSION" \
    -o /out/entrypoint ./cmd/$BINARY
# What the agent runs beside itself, from a module of its own.
RUN if [ "$BINARY" = spokelet-agent ]; then cd helm && CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH \
    go build -trimpath -ldflags "-s -w" -o /out/spokelet-helm ./cmd/spokelet-helm; fi

FROM scratch
# For "work agent", and for charts: their servers may have public certificates.
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /out/ /
USER 65532:65532
ENTRYPOINT ["/entrypoint"]
