# Copyright The Spokelet Authors.
# SPDX-License-Identifier: Apache-2.0

# The images of hub and agent, for builders with a Docker daemon:
#
#   docker buildx build --platform linux/amd64,linux/arm64 --build-arg BINARY=spokelet-hub .
#
# "make images" builds the same contents without one.
FROM --platform=$BUILDPLATFORM golang:1.26 AS build
ARG TARGETOS TARGETARCH BINARY VERSION=dev
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH go build -trimpath \
    -ldflags "-s -w -X github.com/spokelet/spokelet/cmd/internal/command.Version=$VERSION" \
    -o /out/entrypoint ./cmd/$BINARY

FROM gcr.io/distroless/static:nonroot
COPY --from=build /out/entrypoint /entrypoint
USER 65532:65532
ENTRYPOINT ["/entrypoint"]
